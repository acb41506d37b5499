-- Whether deadlines are in a partition, waiting or leased.
-- KEYS[1]  due
-- KEYS[2]  held
-- ARGV     member (order number and instant) of each deadline
-- returns  a text of 0 and 1
-- bound    512 deadlines
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local due, held = KEYS[1], KEYS[2]
local scores = redis.call('ZMSCORE', due, unpack(ARGV))
local there = {}
for i = 1, #ARGV do
  there[i] = '1'
  if not scores[i] then
    local entry = redis.call('HGET', held, string.sub(ARGV[i], 1, 8))
    if not (entry and string.sub(entry, 30, 37) == string.sub(ARGV[i], 9, 16)) then
      there[i] = '0'
    end
  end
end
return table.concat(there)
