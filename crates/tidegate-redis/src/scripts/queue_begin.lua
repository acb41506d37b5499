-- Names a queue in the list of queues.
-- KEYS[1]  names
-- ARGV[1]  the name, ARGV[2] most queues
-- returns  1: it is in the list, 0: the list is full
-- bound    1 queue
local names = KEYS[1]
if not redis.call('ZSCORE', names, ARGV[1]) then
  if redis.call('ZCARD', names) >= tonumber(ARGV[2]) then
    return 0
  end
  redis.call('ZADD', names, 0, ARGV[1])
end
return 1
