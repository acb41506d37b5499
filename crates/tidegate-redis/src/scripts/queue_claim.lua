-- Leases what is due: the earliest, and of a pile a share of the newest. A task whose lease ran out after its last attempt dies.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV[1]  most tasks (0: only a look), ARGV[2] how many of the newest if there are more, ARGV[3] lease (ms)
-- ARGV[4]  attempts a task has, ARGV[5] most bytes of payload, ARGV[6] the error of those that die
-- ARGV[7]  most tasks of the whole claim, ARGV[8] those that its earlier parts leased, ARGV[9] the bytes of their payloads
-- returns  time (microseconds), number of the queue or '', the head's score or '', the end of the leases, then id, score before
--          ('!' in front: suspect) and entry of each
-- bound    256 tasks, 1 MiB of payload (or one task)
local waiting, leased, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)
local known = redis.call('HMGET', mark, 't', 'i', 'r')
local seen = tonumber(known[1] or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local upto, max, newest = string.format('%.0f', now), tonumber(ARGV[1]), tonumber(ARGV[2])
local max_attempts, whole, most_bytes = tonumber(ARGV[4]), tonumber(ARGV[7]), tonumber(ARGV[5])
local till = string.format('%.0f', now + tonumber(ARGV[3]))
local reply = { string.format('%.0f', stamp), known[2] or '', '', till }
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

-- Ids, their scores, and whether each ran out of its lease. The first `oldest` are the earliest of all, in order.
local ids, scores, lapsed, oldest = {}, {}, {}, 0

-- Adds the first of two lists of id and score, in order (or in reverse).
local function merge(a, b, limit, reverse)
  local i, j, n = 1, 1, #ids
  local till = n + limit
  while n < till and (a[i] or b[j]) do
    local from_b = not a[i]
    if a[i] and b[j] then
      from_b = before(tonumber(b[j + 1]), b[j], tonumber(a[i + 1]), a[i]) ~= reverse
    end
    n = n + 1
    if from_b then
      ids[n], scores[n], lapsed[n] = b[j], b[j + 1], true
      j = j + 2
    else
      ids[n], scores[n], lapsed[n] = a[i], a[i + 1], false
      i = i + 2
    end
  end
end

if max > 0 then
  local a = redis.call('ZRANGEBYSCORE', waiting, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, max + 1)
  local b = redis.call('ZRANGEBYSCORE', leased, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, max + 1)
  if (#a + #b) / 2 > max then
    merge(a, b, max - newest, false)
    oldest = #ids
    if newest > 0 then
      a = redis.call('ZREVRANGEBYSCORE', waiting, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      b = redis.call('ZREVRANGEBYSCORE', leased, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      merge(a, b, newest, true)
    end
  else
    merge(a, b, max, false)
    oldest = #ids
  end
end

if #ids > 0 then
  local entries = redis.call('HMGET', tasks, unpack(ids))
  local last = math.max(tonumber(known[3] or 0), stamp - 1)
  local from_waiting, from_leased, to_leased, to_dead, to_tasks = {}, {}, {}, {}, {}
  -- How many are taken off the head of those that wait: one is taken only after all before it.
  local first = 0
  local limit, count, bytes, leases, n = whole, tonumber(ARGV[8]), tonumber(ARGV[9]), 0, #reply
  for i = 1, #ids do
    local id, late, entry = ids[i], lapsed[i], entries[i]
    local due, attempt, length, size = nil, 0, 0, 0
    if entry then
      attempt, length = struct.unpack('>I2I2', entry, 17)
      size = #entry - 20 - length
    else
      due = struct.pack('>i8', tonumber(scores[i]))
    end
    if late and attempt >= max_attempts then
      from_leased[#from_leased + 1] = id
      to_dead[#to_dead + 1] = upto
      to_dead[#to_dead + 1] = id
      to_tasks[#to_tasks + 1] = id
      to_tasks[#to_tasks + 1] = (due or string.sub(entry, 1, 8)) .. struct.pack('>I8I2I2', 0, attempt, #ARGV[6]) .. ARGV[6]
        .. (entry and string.sub(entry, 21 + length) or '')
    else
      local allowed = whole
      if late then
        allowed = attempt + 1 >= max_attempts and 1 or math.max(1, math.floor(whole / 8 ^ math.min(attempt, 20)))
      end
      if count < math.min(limit, allowed) then
        if count > 0 and bytes + size > most_bytes then
          break
        end
        limit = math.min(limit, allowed)
        bytes = bytes + size
        count = count + 1
        last = last + 1
        if late then
          from_leased[#from_leased + 1] = id
        elseif i <= oldest then
          first = first + 1
        else
          from_waiting[#from_waiting + 1] = id
        end
        leases = leases + 2
        to_leased[leases - 1], to_leased[leases] = till, id
        -- Its instant, error and payload stay.
        local new
        if entry then
          new = string.sub(entry, 1, 8) .. struct.pack('>I8I2', last, attempt + 1) .. string.sub(entry, 19)
        else
          new = due .. struct.pack('>I8I2I2', last, attempt + 1, 0)
        end
        to_tasks[#to_tasks + 1] = id
        to_tasks[#to_tasks + 1] = new
        -- Its lease ran out twice, or before its last attempt.
        local suspect = late and (attempt >= 2 or attempt + 1 >= max_attempts)
        reply[n + 1], reply[n + 2], reply[n + 3] = id, suspect and '!' .. scores[i] or scores[i], new
        n = n + 3
      end
    end
  end
  -- What takes no memory comes first: a full server then lets the rest pass.
  if #from_waiting > 0 then
    redis.call('ZREM', waiting, unpack(from_waiting))
  end
  if first > 0 then
    redis.call('ZREMRANGEBYRANK', waiting, 0, first - 1)
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
  if #to_tasks > 0 then
    redis.call('HSET', tasks, unpack(to_tasks))
  end
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
