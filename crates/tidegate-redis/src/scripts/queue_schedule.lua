-- Adds tasks to a queue, or changes those that are there as their condition allows.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV[1]  channel, ARGV[2] this process: told when the head moved forward, ARGV[3] the number of a queue that begins here,
--          ARGV[4] the latest instant
-- ARGV[5..] id, instant ('+' before a delay), condition ('a'bsent, 'e'arlier, 'l'ater, al'w'ays), payload of each task
-- returns  time (microseconds), number of the queue, whether it began here, whether the head moved forward, then for each task
--          'N' or 'C' and its instant (new, changed), or its state ('W', 'L', 'D'), score and entry (left alone)
-- bound    128 tasks, 1 MiB of payload (or one task)
-- An entry of tasks: instant (8 bytes, big-endian), receipt (8), attempt (2), length of the error (2), error, payload.
local waiting, leased, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local any_leased, any_dead = redis.call('ZCARD', leased) > 0, redis.call('ZCARD', dead) > 0
local head = tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2] or '')
redis.call('HLEN', tasks)
local number, began = redis.call('HGET', mark, 'i'), 0
if not number then
  number, began = ARGV[3], 1
  redis.call('HSET', mark, 'i', number)
end
local reply, first = { string.format('%.0f', stamp), number, began, 0 }, nil
for i = 5, #ARGV, 4 do
  local id, due, condition, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if string.sub(due, 1, 1) == '+' then
    due = string.format('%.0f', math.min(now + tonumber(string.sub(due, 2)), tonumber(ARGV[4])))
  end
  local state, score = 'W', redis.call('ZSCORE', waiting, id)
  if not score and any_leased then
    state, score = 'L', redis.call('ZSCORE', leased, id)
  end
  if not score and any_dead then
    state, score = 'D', redis.call('ZSCORE', dead, id)
  end
  local change = true
  if score then
    local entry = redis.call('HGET', tasks, id)
    local at = tonumber(score)
    if entry then
      at = struct.unpack('>i8', entry)
    end
    change = condition == 'w' or (condition == 'e' and tonumber(due) < at) or (condition == 'l' and tonumber(due) > at)
    if not change then
      reply[#reply + 1] = state
      reply[#reply + 1] = score
      reply[#reply + 1] = entry or ''
    elseif state == 'L' then
      redis.call('ZREM', leased, id)
    elseif state == 'D' then
      redis.call('ZREM', dead, id)
    end
  end
  if change then
    redis.call('ZADD', waiting, due, id)
    if payload ~= '' then
      redis.call('HSET', tasks, id, struct.pack('>i8I8I2I2', tonumber(due), 0, 0, 0) .. payload)
    elseif score then
      redis.call('HDEL', tasks, id)
    end
    reply[#reply + 1] = score and 'C' or 'N'
    reply[#reply + 1] = due
    local at = tonumber(due)
    if not first or at < first then
      first = at
    end
  end
end
if first and (not head or first < head) then
  reply[4] = 1
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return reply
