-- Leases what is due: the earliest, and of a pile a share of the newest. A task whose lease ran out after its last attempt dies.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV[1]  most tasks (0: only a look), ARGV[2] how many of the newest if there are more, ARGV[3] lease (ms)
-- ARGV[4]  attempts a task has, ARGV[5] most bytes of payload, ARGV[6] the error of those that die
-- returns  time (microseconds), number of the queue or '', the head's score or '', then id, score before, end of the lease,
--          attempt (below 0: suspect), receipt, instant, payload of each
-- bound    512 tasks, 1 MiB of payload (or one task)
local waiting, leased, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local upto, max, newest = string.format('%.0f', now), tonumber(ARGV[1]), tonumber(ARGV[2])
local max_attempts = tonumber(ARGV[4])
local reply = { string.format('%.0f', stamp), redis.call('HGET', mark, 'i') or '', '' }
redis.call('HLEN', tasks)
redis.call('ZCARD', dead)

-- Whether place a is before place b; ids are compared byte for byte, whatever the server's locale.
local function before(score_a, id_a, score_b, id_b)
  if score_a ~= score_b then
    return score_a < score_b
  end
  for i = 1, math.min(#id_a, #id_b) do
    local x, y = string.byte(id_a, i), string.byte(id_b, i)
    if x ~= y then
      return x < y
    end
  end
  return #id_a < #id_b
end

-- The first of two lists of id and score, in order (or in reverse), with whether each comes from the second.
local function merge(a, b, limit, reverse)
  local out, i, j = {}, 1, 1
  while #out < limit and (a[i] or b[j]) do
    local from_b = not a[i]
    if a[i] and b[j] then
      from_b = before(tonumber(b[j + 1]), b[j], tonumber(a[i + 1]), a[i]) ~= reverse
    end
    if from_b then
      out[#out + 1] = { b[j], b[j + 1], true }
      j = j + 2
    else
      out[#out + 1] = { a[i], a[i + 1], false }
      i = i + 2
    end
  end
  return out
end

local candidates = {}
if max > 0 then
  local a = redis.call('ZRANGEBYSCORE', waiting, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, max + 1)
  local b = redis.call('ZRANGEBYSCORE', leased, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, max + 1)
  if (#a + #b) / 2 > max then
    candidates = merge(a, b, max - newest, false)
    if newest > 0 then
      a = redis.call('ZREVRANGEBYSCORE', waiting, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      b = redis.call('ZREVRANGEBYSCORE', leased, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      for _, candidate in ipairs(merge(a, b, newest, true)) do
        candidates[#candidates + 1] = candidate
      end
    end
  else
    candidates = merge(a, b, max, false)
  end
end

if #candidates > 0 then
  local ids = {}
  for i, candidate in ipairs(candidates) do
    ids[i] = candidate[1]
  end
  local entries = redis.call('HMGET', tasks, unpack(ids))
  local last = math.max(tonumber(redis.call('HGET', mark, 'r') or 0), stamp - 1)
  local till = string.format('%.0f', now + tonumber(ARGV[3]))
  local from_waiting, from_leased, to_leased, to_dead, to_tasks = {}, {}, {}, {}, {}
  local limit, bytes, count = max, 0, 0
  for i, candidate in ipairs(candidates) do
    local id, score, lapsed = candidate[1], candidate[2], candidate[3]
    local due, attempt, err, payload = tonumber(score), 0, '', ''
    if entries[i] then
      local instant, _, tries, length = struct.unpack('>i8I8I2I2', entries[i])
      due, attempt = instant, tries
      err, payload = string.sub(entries[i], 21, 20 + length), string.sub(entries[i], 21 + length)
    end
    if lapsed and attempt >= max_attempts then
      from_leased[#from_leased + 1] = id
      to_dead[#to_dead + 1] = upto
      to_dead[#to_dead + 1] = id
      to_tasks[#to_tasks + 1] = id
      to_tasks[#to_tasks + 1] = struct.pack('>i8I8I2I2', due, 0, attempt, #ARGV[6]) .. ARGV[6] .. payload
    else
      local allowed = max
      if lapsed then
        allowed = attempt + 1 >= max_attempts and 1 or math.max(1, math.floor(max / 8 ^ math.min(attempt, 20)))
      end
      if count < math.min(limit, allowed) then
        if count > 0 and bytes + #payload > tonumber(ARGV[5]) then
          break
        end
        limit = math.min(limit, allowed)
        bytes = bytes + #payload
        count = count + 1
        last = last + 1
        local from = lapsed and from_leased or from_waiting
        from[#from + 1] = id
        to_leased[#to_leased + 1] = till
        to_leased[#to_leased + 1] = id
        to_tasks[#to_tasks + 1] = id
        to_tasks[#to_tasks + 1] = struct.pack('>i8I8I2I2', due, last, attempt + 1, #err) .. err .. payload
        local n = #reply
        -- Its lease ran out twice, or before its last attempt.
        local suspect = lapsed and (attempt >= 2 or attempt + 1 >= max_attempts)
        reply[n + 1], reply[n + 2], reply[n + 3] = id, score, till
        reply[n + 4] = suspect and -(attempt + 1) or attempt + 1
        reply[n + 5], reply[n + 6], reply[n + 7] = string.format('%.0f', last), string.format('%.0f', due), payload
      end
    end
  end
  -- What takes no memory comes first: a full server then lets the rest pass.
  if #from_waiting > 0 then
    redis.call('ZREM', waiting, unpack(from_waiting))
  end
  if #from_leased > 0 then
    redis.call('ZREM', leased, unpack(from_leased))
  end
  if #to_leased > 0 then
    redis.call('ZADD', leased, unpack(to_leased))
  end
  if #to_dead > 0 then
    redis.call('ZADD', dead, unpack(to_dead))
  end
  redis.call('HSET', tasks, unpack(to_tasks))
  redis.call('HSET', mark, 't', upto, 'r', string.format('%.0f', last))
end
local head = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2]
local lease = redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')[2]
if head and lease then
  reply[3] = tonumber(lease) < tonumber(head) and lease or head
else
  reply[3] = head or lease or ''
end
return reply
