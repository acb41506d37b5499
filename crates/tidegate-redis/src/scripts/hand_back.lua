-- Hands back what a node has leased: claimable at its own instant.
-- KEYS[1]  due
-- KEYS[2]  held
-- ARGV[1]  node, ARGV[2] where to go on (0 at first), ARGV[3] '1' when the try counts
-- returns  where to go on (0 at the end), how many were handed back
-- bound    one step of HSCAN with COUNT 512
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local due, held = KEYS[1], KEYS[2]
local function score(instant)
  local high, low = struct.unpack('>I4I4', instant)
  return string.format('%.17g', (high - 2147483648) * 4294967296 + low)
end
local step = redis.call('HSCAN', held, ARGV[2], 'COUNT', 512)
local found, back = step[2], 0
for i = 1, #found, 2 do
  local order, entry = found[i], found[i + 1]
  if #order == 8 and string.byte(entry, 13) == 1 and string.sub(entry, 14, 21) == ARGV[1] then
    local tries = struct.unpack('>I4', string.sub(entry, 9, 12))
    local instant, again = string.sub(entry, 22, 29), string.sub(entry, 30, 37)
    if ARGV[3] ~= '1' then
      tries = tries - 1
    end
    redis.call('ZADD', due, score(instant), order .. instant)
    if again ~= '' then
      redis.call('ZADD', due, 'NX', score(again), order .. again)
    end
    if tries > 0 then
      redis.call('HSET', held, order, struct.pack('>I8I4B', 0, tries, 0) .. string.sub(entry, 14, 29))
    else
      redis.call('HDEL', held, order)
    end
    back = back + 1
  end
end
return { step[1], back }
