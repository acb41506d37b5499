-- Takes units of stock, or gives them back: all or nothing, never below zero, once for each operation id.
-- KEYS[1]  operation: remembers what was done
-- KEYS[2..] units of each SKU
-- ARGV[1]  what the operation is, as a fingerprint; ARGV[2] for how many seconds it is remembered
-- ARGV[3..] units to add to each SKU (negative: to take)
-- returns  outcome, then a number for each SKU: 'done' or 'again' (units left after it was done), 'other' (the id was used
--          for another operation), 'unknown' or 'short' (which SKU is, counted from 1, and its units)
-- bound    100 SKUs
local operation = KEYS[1]
local before = redis.call('GET', operation)
if before then
  local what, left = string.match(before, '^(%S+) (.*)$')
  if what ~= ARGV[1] then
    return { 'other' }
  end
  local reply = { 'again' }
  for units in string.gmatch(left, '%S+') do
    reply[#reply + 1] = units
  end
  return reply
end
for i = 2, #KEYS do
  local units = redis.call('GET', KEYS[i])
  if not units then
    return { 'unknown', i - 1, 0 }
  end
  if tonumber(units) + tonumber(ARGV[i + 1]) < 0 then
    return { 'short', i - 1, units }
  end
end
local reply = { 'done' }
for i = 2, #KEYS do
  reply[i] = redis.call('INCRBY', KEYS[i], ARGV[i + 1])
end
redis.call('SET', operation, ARGV[1] .. ' ' .. table.concat(reply, ' ', 2), 'EX', ARGV[2])
return reply
