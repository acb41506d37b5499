-- Changes the status of an order in a hash, if the change is allowed, and renews the hash's time to live.
-- KEYS[1]  order
-- ARGV[1]  name of the status field, ARGV[2] the new status, ARGV[3] the status it must have, or nothing
-- ARGV[4]  time to live from now on, milliseconds; ARGV[5] how many fields to set with it
-- ARGV[6..] these fields and their values, then each status from which the change is allowed
-- returns  outcome and the status before: 'changed', 'already', 'unexpected', 'illegal', or 'unknown' (no such order)
-- bound    one hash, 64 fields
local order = KEYS[1]
local now = redis.call('HGET', order, ARGV[1])
if not now then
  return { 'unknown', '' }
end
if now == ARGV[2] then
  redis.call('PEXPIRE', order, ARGV[4])
  return { 'already', now }
end
if ARGV[3] ~= '' and ARGV[3] ~= now then
  return { 'unexpected', now }
end
local first = 6 + 2 * ARGV[5]
local allowed = false
for i = first, #ARGV do
  allowed = allowed or ARGV[i] == now
end
if not allowed then
  return { 'illegal', now }
end
redis.call('HSET', order, ARGV[1], ARGV[2])
for i = 6, first - 1, 2 do
  redis.call('HSET', order, ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', order, ARGV[4])
return { 'changed', now }
