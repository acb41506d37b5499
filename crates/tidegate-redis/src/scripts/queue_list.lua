-- A page of one of a queue's sets.
-- KEYS     the set, tasks, mark
-- ARGV[1]  score and ARGV[2] id after which (before which, in reverse) it begins, ARGV[3] most tasks, ARGV[4] '1': in reverse
-- ARGV[5]  'h'eld: only what comes after now, 'l'apsed: only what does not, 'a'll
-- returns  the queue's time (ms), then id, score and entry of each
-- bound    1,000 tasks, and the logarithm of the set's size
local set, tasks, mark = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local score, id, limit, reverse = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

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

-- How many are before this place (with it, if `through`).
local function rank(of_score, of_id, through)
  local low, high = 0, redis.call('ZCARD', set)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = redis.call('ZRANGE', set, middle, middle, 'WITHSCORES')
    local at = tonumber(there[2])
    if before(at, there[1], of_score, of_id) or (through and at == of_score and there[1] == of_id) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local from, to
if reverse then
  to = rank(score, id, false) - 1
  from = math.max(0, to - limit + 1)
else
  from = rank(score, id, true)
  if ARGV[5] == 'h' then
    from = math.max(from, rank(now, '\255', true))
  end
  to = from + limit - 1
  if ARGV[5] == 'l' then
    to = math.min(to, rank(now, '\255', true) - 1)
  end
end
local reply = { string.format('%.0f', now) }
if to >= from then
  local found = redis.call('ZRANGE', set, from, to, 'WITHSCORES')
  for i = 1, #found, 2 do
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = found[i + 1]
    reply[#reply + 1] = redis.call('HGET', tasks, found[i]) or ''
  end
end
return reply
