-- Removes tasks in any state.
-- KEYS     waiting, leased, dead, tasks
-- ARGV     ids
-- returns  1 or 0 for each: whether it was there
-- bound    128 tasks
local waiting, leased, dead, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local reply = {}
for i = 1, #ARGV do
  local id = ARGV[i]
  local there = redis.call('ZREM', waiting, id)
  if there == 0 then
    there = redis.call('ZREM', leased, id)
  end
  if there == 0 then
    there = redis.call('ZREM', dead, id)
  end
  if there == 1 then
    redis.call('HDEL', tasks, id)
  end
  reply[i] = there
end
return reply
