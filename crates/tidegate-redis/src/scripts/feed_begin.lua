-- The last of the news, from which on a process reads them.
-- KEYS[1]  news, KEYS[2] mark: see feed_mark.lua
-- ARGV[1]  how long idle news are kept (ms), ARGV[2] what is written if there are none: nobody has written it before, ARGV[3] now
--          (ms, of the caller's host), ARGV[4] how long a mark is kept (ms)
-- returns  one entry, as XRANGE gives it; none: another server has the mark, and what this one has may be old
-- bound    1 entry, 1 INFO
local news = KEYS[1]
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local marked = redis.call('HGET', KEYS[2], 'server')
if marked and marked ~= server then
  return {}
end
if not marked then
  redis.call('HSET', KEYS[2], 'server', server, 'at', ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
redis.call('PEXPIRE', news, ARGV[1])
if redis.call('EXISTS', news) == 0 then
  redis.call('XADD', news, '*', 'e', ARGV[2])
  redis.call('PEXPIRE', news, ARGV[1])
end
return redis.call('XREVRANGE', news, '+', '-', 'COUNT', 1)
