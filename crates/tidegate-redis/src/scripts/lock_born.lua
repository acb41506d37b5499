-- Notes when the server was born, if that is news; see lock_vote.lua.
-- KEYS[1]  born
-- ARGV[1]  longest time of any lock (ms)
-- returns  for how long its word does not count (ms)
-- bound    1 key
local born = KEYS[1]
local longest = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local there = redis.call('HMGET', born, 'r', 'b', 'm')
if there[1] ~= run then
  redis.call('HSET', born, 'r', run, 'b', string.format('%.0f', now), 'm', ARGV[1])
  return string.format('%.0f', longest)
end
return string.format('%.0f', math.max(0, tonumber(there[2]) + tonumber(there[3]) - now))
