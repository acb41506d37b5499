-- Makes the caller the one who refreshes a value.
-- KEYS[1]  slot, KEYS[2] refresher, KEYS[3] notes
-- ARGV[1]  what the value begins with, ARGV[2] token of the refresh, ARGV[3] its life (ms)
-- returns  'G', floor ('' for none), failures; 'Y': another refreshes it; 'L': another value, or none, is there
-- bound    17 bytes of one entry
local slot, refresher, notes = KEYS[1], KEYS[2], KEYS[3]
if redis.call('GETRANGE', slot, 0, 16) ~= ARGV[1] then
  return { 'L' }
end
if not redis.call('SET', refresher, ARGV[2], 'PX', ARGV[3], 'NX') then
  return { 'Y' }
end
local known = redis.call('HMGET', notes, 'v', 'f')
return { 'G', known[1] or '', known[2] or '0' }
