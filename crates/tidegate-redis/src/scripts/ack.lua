-- Done with these; receipts that are no longer current are ignored.
-- KEYS[1]  due
-- KEYS[2]  held
-- ARGV     order number, receipt (8 bytes each, one after the other) of each claim
-- returns  how many deadlines wait again, because they were scheduled during the lease
-- bound    512 claims
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local due, held = KEYS[1], KEYS[2]
local restored = 0
local function score(instant)
  local high, low = struct.unpack('>I4I4', instant)
  return string.format('%.17g', (high - 2147483648) * 4294967296 + low)
end
for i = 1, #ARGV do
  local order, receipt = string.sub(ARGV[i], 1, 8), string.sub(ARGV[i], 9, 16)
  local entry = redis.call('HGET', held, order)
  if entry and string.sub(entry, 1, 8) == receipt and string.byte(entry, 13) == 1 then
    local again = string.sub(entry, 30, 37)
    redis.call('ZREM', due, order .. string.sub(entry, 22, 29))
    redis.call('HDEL', held, order)
    if again ~= '' then
      redis.call('ZADD', due, 'NX', score(again), order .. again)
      restored = restored + 1
    end
  end
end
return restored
