-- A queue in numbers.
-- KEYS     waiting, leased, dead, mark
-- ARGV     none
-- returns  '' if it never began, else waiting, those of them due, leased, those of them that ran out, dead, and the earliest
--          score of what is due or ''
-- bound    the logarithm of the queue's size
local waiting, leased, dead, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local known = redis.call('HMGET', mark, 'i', 't')
if not known[1] then
  return ''
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(known[2] or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local upto = string.format('%.0f', now)
local first = redis.call('ZRANGEBYSCORE', waiting, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, 1)[2]
local lapsed = redis.call('ZRANGEBYSCORE', leased, '-inf', upto, 'WITHSCORES', 'LIMIT', 0, 1)[2]
if first and lapsed and tonumber(lapsed) < tonumber(first) then
  first = lapsed
end
return {
  redis.call('ZCARD', waiting),
  redis.call('ZCOUNT', waiting, '-inf', upto),
  redis.call('ZCARD', leased),
  redis.call('ZCOUNT', leased, '-inf', upto),
  redis.call('ZCARD', dead),
  first or lapsed or '',
}
