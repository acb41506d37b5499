-- Adds deadlines to a partition; one that is there already keeps its lease or the delay of its retry.
-- KEYS[1]  due
-- ARGV[1]  channel, ARGV[2] this node: told, with the new head, when the head moved forward
-- ARGV[3..] score, member (order number and instant) of each deadline
-- returns  how many are new
-- bound    512 deadlines
local due = KEYS[1]
local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
local pairs_of = {}
local least = nil
for i = 3, #ARGV do
  pairs_of[i - 2] = ARGV[i]
  if i % 2 == 1 then
    local score = tonumber(ARGV[i])
    if not least or score < least then
      least = score
    end
  end
end
local added = redis.call('ZADD', due, 'NX', unpack(pairs_of))
if added > 0 and (not head or least < tonumber(head)) then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. string.format('%.17g', least))
end
return added
