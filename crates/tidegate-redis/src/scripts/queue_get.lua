-- Tasks as they stand.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV     ids
-- returns  the queue's time (ms), then state ('W', 'L', 'D', or '' for none), score and entry of each
-- bound    128 tasks
local waiting, leased, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local reply = { string.format('%.0f', now) }
for i = 1, #ARGV do
  local id = ARGV[i]
  local state, score = 'W', redis.call('ZSCORE', waiting, id)
  if not score then
    state, score = 'L', redis.call('ZSCORE', leased, id)
  end
  if not score then
    state, score = 'D', redis.call('ZSCORE', dead, id)
  end
  reply[#reply + 1] = score and state or ''
  reply[#reply + 1] = score or ''
  reply[#reply + 1] = score and redis.call('HGET', tasks, id) or ''
end
return reply
