-- Fills the copy of a user's ties, unless something newer was told.
-- KEYS[1]  ties, KEYS[2] lease
-- ARGV[1]  version, ARGV[2] the copy, ARGV[3] life (ms)
-- returns  1, or 0: something newer was told
-- bound    17 bytes are read, the copy is written
local ties, lease = KEYS[1], KEYS[2]
local there = tonumber(string.sub(redis.call('GETRANGE', ties, 1, 16), 1, 16))
local taken = not there or there <= tonumber(ARGV[1])
if taken then
  redis.call('SET', ties, ARGV[2], 'PX', ARGV[3])
end
redis.call('UNLINK', lease)
return taken and 1 or 0
