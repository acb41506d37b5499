-- A node's heartbeat, and everybody's last one.
-- KEYS[1]  nodes
-- ARGV[1]  this node, or nothing to only look
-- ARGV[2..] nodes to strike out: they are gone and what they held was handed back
-- returns  whether this node was known, Redis time in milliseconds, then node and last heartbeat of each
-- bound    one field a node; nodes are struck out when they are gone
local nodes = KEYS[1]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
for i = 2, #ARGV do
  redis.call('HDEL', nodes, ARGV[i])
end
local known = 0
if ARGV[1] ~= '' then
  known = redis.call('HEXISTS', nodes, ARGV[1])
  redis.call('HSET', nodes, ARGV[1], now)
end
local reply = { known, now }
local all = redis.call('HGETALL', nodes)
for i = 1, #all do
  reply[i + 2] = all[i]
end
return reply
