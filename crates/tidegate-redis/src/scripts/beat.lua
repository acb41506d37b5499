-- A node's heartbeat, and everybody's last one.
-- KEYS[1]  nodes, KEYS[2] owner
-- ARGV[1]  this node, or nothing to only look
-- ARGV[2]  what this node is (ledger and number of partitions), or nothing
-- ARGV[3]  for how long its heartbeat counts more than others', milliseconds: a node without leases beats less often
-- ARGV[4..] nodes to strike out: they are gone and what they held was handed back
-- returns  whether this node was known, Redis time in milliseconds, then node and last heartbeat of each; or, when the name
--          is another's, -1 and what is there
-- bound    one field a node; nodes are struck out when they are gone
local nodes, owner = KEYS[1], KEYS[2]
if ARGV[2] ~= '' then
  local there = redis.call('GET', owner)
  if not there then
    redis.call('SET', owner, ARGV[2])
  elseif there ~= ARGV[2] then
    return { -1, there }
  end
end
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local now = string.format('%.0f', ms)
for i = 4, #ARGV do
  redis.call('HDEL', nodes, ARGV[i])
end
local known = 0
if ARGV[1] ~= '' then
  known = redis.call('HEXISTS', nodes, ARGV[1])
  redis.call('HSET', nodes, ARGV[1], string.format('%.0f', ms + ARGV[3]))
end
local reply = { known, now }
local all = redis.call('HGETALL', nodes)
for i = 1, #all do
  reply[i + 2] = all[i]
end
return reply
