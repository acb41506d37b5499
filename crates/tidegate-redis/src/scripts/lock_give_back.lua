-- Gives a lock back on one of several servers.
-- KEYS[1]  holder
-- ARGV[1]  token
-- returns  1: it was the caller's, else 0
-- bound    1 lock
local holder = KEYS[1]
if redis.call('HGET', holder, 't') ~= ARGV[1] then
  return 0
end
return redis.call('DEL', holder)
