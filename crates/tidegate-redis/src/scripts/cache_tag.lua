-- A tag's counter. A tag without one gets one that it never had: Redis time in microseconds grows faster than anybody counts.
-- KEYS[1]  counter
-- ARGV[1]  how long it is kept (ms), ARGV[2] '1' moves it on
-- ARGV[3]  the largest counter the caller has seen: clocks may be set back, and a new master may have lost the newest
-- returns  the counter
-- bound    1 counter
local counter = KEYS[1]
local known = tonumber(redis.call('GET', counter) or '')
local seen = tonumber(ARGV[3])
if known and ARGV[2] ~= '1' then
  if redis.call('PTTL', counter) < tonumber(ARGV[1]) then
    redis.call('PEXPIRE', counter, ARGV[1])
  end
  return string.format('%.0f', known)
end
local keep = math.max(redis.call('PTTL', counter), tonumber(ARGV[1]))
-- A server whose memory is full refuses to add, unless a script has written already: this must not be refused.
redis.call('PEXPIRE', counter, string.format('%.0f', keep))
if not known then
  local time = redis.call('TIME')
  known = time[1] * 1000000 + time[2]
end
local text = string.format('%.0f', math.max(known, seen) + 1)
redis.call('SET', counter, text, 'PX', string.format('%.0f', keep))
return text
