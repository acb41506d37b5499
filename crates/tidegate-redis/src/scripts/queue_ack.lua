-- Acknowledges tasks: what most holders say of most tasks. `queue_settle.lua` does the same among other verdicts.
-- KEYS     leased, tasks
-- ARGV     id and receipt (8 bytes, big-endian) of each
-- returns  time (microseconds), then a letter for each in one text: 'H' (done) or 'L' (lost)
-- bound    128 tasks
local leased, tasks = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local ids, n = {}, 0
for i = 1, #ARGV, 2 do
  n = n + 1
  ids[n] = ARGV[i]
end
local found = redis.call('HMGET', tasks, unpack(ids))
local gone, acked, outcomes = {}, {}, {}
for i = 1, n do
  local id, entry, receipt = ids[i], found[i], ARGV[2 * i]
  if entry and not acked[id] and string.sub(entry, 9, 16) == receipt and receipt ~= '\0\0\0\0\0\0\0\0' then
    acked[id] = true
    gone[#gone + 1] = id
    outcomes[i] = 'H'
  else
    outcomes[i] = 'L'
  end
end
if #gone > 0 then
  redis.call('ZREM', leased, unpack(gone))
  redis.call('HDEL', tasks, unpack(gone))
end
return { string.format('%.0f', time[1] * 1000000 + time[2]), table.concat(outcomes) }
