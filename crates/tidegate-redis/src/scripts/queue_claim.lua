-- Leases what is due: the earliest, and of a pile a share of the newest. A task whose lease ran out after its last attempt dies.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV[1]  most tasks (0: only a look), ARGV[2] how many of the newest if there are more, ARGV[3] lease (ms)
-- ARGV[4]  attempts a task has, ARGV[5] most bytes of payload, ARGV[6] the error of those that die
-- ARGV[7]  most tasks of the whole claim, ARGV[8] those that its earlier parts leased, ARGV[9] the bytes of their payloads
-- returns  time (microseconds), number of the queue or '', the head's score or '', the end of the leases, then id, score before
--          ('!' in front: suspect) and entry of each
-- bound    128 tasks, 1 MiB of payload (or one task)
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

-- Ids, their scores, and whether each ran out of its lease.
local ids, scores, lapsed = {}, {}, {}

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
    if newest > 0 then
      a = redis.call('ZREVRANGEBYSCORE', waiting, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      b = redis.call('ZREVRANGEBYSCORE', leased, upto, '-inf', 'WITHSCORES', 'LIMIT', 0, newest)
      merge(a, b, newest, true)
    end
  else
    merge(a, b, max, false)
  end
end

if #ids > 0 then
  local entries = redis.call('HMGET', tasks, unpack(ids))
  local last = math.max(tonumber(known[3] or 0), stamp - 1)
  local from_waiting, from_leased, to_leased, to_dead, to_tasks = {}, {}, {}, {}, {}
  local limit, count, bytes, n = whole, tonumber(ARGV[8]), tonumber(ARGV[9]), #reply
  for i = 1, #ids do
    local id, late, entry = ids[i], lapsed[i], entries[i]
    local due, attempt, length, size, rest = nil, 0, 0, 0, ''
    if entry then
      local instant, _, tries, error_length = struct.unpack('>i8I8I2I2', entry)
      due, attempt, length = instant, tries, error_length
      size, rest = #entry - 20 - length, string.sub(entry, 21)
    else
      due = tonumber(scores[i])
    end
    if late and attempt >= max_attempts then
      from_leased[#from_leased + 1] = id
      to_dead[#to_dead + 1] = upto
      to_dead[#to_dead + 1] = id
      to_tasks[#to_tasks + 1] = id
      to_tasks[#to_tasks + 1] = struct.pack('>i8I8I2I2', due, 0, attempt, #ARGV[6]) .. ARGV[6] .. string.sub(rest, length + 1)
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
        local from = late and from_leased or from_waiting
        from[#from + 1] = id
        to_leased[#to_leased + 1] = till
        to_leased[#to_leased + 1] = id
        local new = struct.pack('>i8I8I2I2', due, last, attempt + 1, length) .. rest
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
