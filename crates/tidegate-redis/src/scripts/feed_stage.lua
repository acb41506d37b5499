-- Keeps a part of what a root's reposts are filled with.
-- KEYS[1]  what is staged
-- ARGV[1]  for how long (ms), ARGV[2..] fields and values
-- returns  how many fields there are
-- bound    the arguments
local staged = KEYS[1]
for i = 2, #ARGV, 2 do
  redis.call('HSET', staged, ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', staged, ARGV[1])
return redis.call('HLEN', staged)
