-- Claimable again; receipts that are no longer current are ignored.
-- KEYS[1]  due
-- KEYS[2]  held
-- ARGV     for each claim: order number, receipt, instant (8 bytes each, one after the other) and '1' when the try counts
--          (else '0'); then the instant as a score
-- returns  how many receipts were current
-- bound    512 claims
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local due, held = KEYS[1], KEYS[2]
local done = 0
local function score(instant)
  local high, low = struct.unpack('>I4I4', instant)
  return string.format('%.17g', (high - 2147483648) * 4294967296 + low)
end
for i = 1, #ARGV, 2 do
  local order, receipt = string.sub(ARGV[i], 1, 8), string.sub(ARGV[i], 9, 16)
  local at, charge = string.sub(ARGV[i], 17, 24), string.sub(ARGV[i], 25, 25)
  local entry = redis.call('HGET', held, order)
  if entry and string.sub(entry, 1, 8) == receipt and string.byte(entry, 13) == 1 then
    local tries = struct.unpack('>I4', string.sub(entry, 9, 12))
    local instant, again = string.sub(entry, 22, 29), string.sub(entry, 30, 37)
    if charge ~= '1' then
      tries = tries - 1
    end
    if again ~= '' then
      redis.call('ZADD', due, 'NX', score(again), order .. again)
    end
    if again ~= '' and again <= at then
      -- What was scheduled during the lease comes first and will do.
      redis.call('ZREM', due, order .. instant)
      redis.call('HDEL', held, order)
    else
      redis.call('ZADD', due, ARGV[i + 1], order .. instant)
      if tries > 0 then
        redis.call('HSET', held, order, struct.pack('>I8I4B', 0, tries, 0) .. string.sub(entry, 14, 29))
      else
        redis.call('HDEL', held, order)
      end
    end
    done = done + 1
  end
end
return done
