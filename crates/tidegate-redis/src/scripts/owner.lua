-- Takes a name for a ledger, or says whose it is.
-- KEYS[1]  owner, KEYS[2] nodes
-- ARGV[1]  what the asking node is: ledger and number of partitions
-- ARGV[2]  what that replaces if no node is there, or nothing
-- returns  what is there now, and how many nodes have beaten less than two seconds ago (idle ones: three)
-- bound    one field a node
local owner, nodes = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local present = 0
for _, beat in ipairs(redis.call('HVALS', nodes)) do
  if now - tonumber(beat) < 2000 then
    present = present + 1
  end
end
local there = redis.call('GET', owner)
if not there or (there == ARGV[2] and present == 0) then
  redis.call('SET', owner, ARGV[1])
  there = ARGV[1]
end
return { there, present }
