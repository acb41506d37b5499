-- Removes the oldest of the dead.
-- KEYS     dead, tasks
-- ARGV[1]  the score they must be below, or '+inf', ARGV[2] most tasks
-- returns  how many went, and 1 if there are more
-- bound    128 tasks
local dead, tasks = KEYS[1], KEYS[2]
local below = ARGV[1] == '+inf' and ARGV[1] or '(' .. ARGV[1]
local found = redis.call('ZRANGEBYSCORE', dead, '-inf', below, 'LIMIT', 0, tonumber(ARGV[2]))
if #found > 0 then
  redis.call('ZREM', dead, unpack(found))
  redis.call('HDEL', tasks, unpack(found))
end
local more = redis.call('ZRANGEBYSCORE', dead, '-inf', below, 'LIMIT', 0, 1)
return { #found, #more }
