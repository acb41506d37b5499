-- A sign of life of a process to the lines of a part of the locks; those of the dead are forgotten.
-- KEYS[1]  alive
-- ARGV[1]  process, ARGV[2] how long it counts (ms), ARGV[3] life of the key (ms)
-- returns  1
-- bound    100 of the dead
local alive = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', alive, string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
redis.call('PEXPIRE', alive, ARGV[3])
local dead = redis.call('ZRANGEBYSCORE', alive, '-inf', string.format('(%.0f', now - 60000), 'LIMIT', 0, 100)
if #dead > 0 then
  redis.call('ZREM', alive, unpack(dead))
end
return 1
