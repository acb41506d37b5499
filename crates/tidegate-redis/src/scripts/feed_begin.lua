-- The last of the news, from which on a process reads them.
-- KEYS[1]  news
-- ARGV[1]  how long idle ones are kept (ms), ARGV[2] what is written if there are none: nobody has written it before
-- returns  one entry, as XRANGE gives it
-- bound    1 entry
local news = KEYS[1]
redis.call('PEXPIRE', news, ARGV[1])
if redis.call('EXISTS', news) == 0 then
  redis.call('XADD', news, '*', 'e', ARGV[2])
  redis.call('PEXPIRE', news, ARGV[1])
end
return redis.call('XREVRANGE', news, '+', '-', 'COUNT', 1)
