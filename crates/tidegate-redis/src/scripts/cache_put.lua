-- Stores a value that carries a version, unless something newer is known; every other entry of the key goes.
-- KEYS[1]  notes, KEYS[2] slot, KEYS[3..5] the other slots, KEYS[6..9] refreshers
-- ARGV[1]  the bytes, ARGV[2] their life (ms), ARGV[3] their version ('' for none), ARGV[4] life of the floor (ms)
-- ARGV[5]  the channel and ARGV[6] the words that wake whoever waits
-- returns  'H', or 'B', version: the bytes are older than this
-- bound    26 bytes of one entry and 18 of three are read
local notes, slot = KEYS[1], KEYS[2]
local head = redis.call('GETRANGE', slot, 0, 25)
local kind = string.byte(head, 1)
local floor = tonumber(redis.call('HGET', notes, 'v') or '')
local version = tonumber(ARGV[3])
local least = floor
if (kind == 86 or kind == 65) and #head == 26 then
  local present = struct.unpack('>I8', head, 19)
  -- All ones are no version; a double shows them as more than the largest.
  if present <= 9007199254740991 and (not least or present > least) then
    least = present
  end
end
if least and (not version or version < least) then
  return { 'B', string.format('%.0f', least) }
end
local waited = kind == 76 and (string.byte(head, 18) or 0) ~= 0
for i = 3, 5 do
  head = redis.call('GETRANGE', KEYS[i], 0, 17)
  waited = waited or (string.byte(head, 1) == 76 and (string.byte(head, 18) or 0) ~= 0)
end
redis.call('UNLINK', KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9])
redis.call('SET', slot, ARGV[1], 'PX', ARGV[2])
redis.call('HSET', notes, 'f', '0')
if version then
  redis.call('HSET', notes, 'v', ARGV[3])
end
if redis.call('PTTL', notes) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', notes, ARGV[4])
end
if waited then
  redis.call('PUBLISH', ARGV[5], ARGV[6])
end
return { 'H' }
