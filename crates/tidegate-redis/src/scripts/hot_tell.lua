-- Keeps what a process reads most, for whoever asks.
-- KEYS[1]  processes, by the end of their reports (ms), KEYS[2] the report of this one
-- ARGV[1]  process, ARGV[2] its report, ARGV[3] how long it is kept (ms), ARGV[4] most processes
-- returns  1; 0: there are too many processes
-- bound    1 process, and those that are gone
local who, report = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', who, '-inf', string.format('%.0f', now))
if not redis.call('ZSCORE', who, ARGV[1]) and redis.call('ZCARD', who) >= tonumber(ARGV[4]) then
  return 0
end
redis.call('ZADD', who, string.format('%.0f', now + ARGV[3]), ARGV[1])
redis.call('PEXPIRE', who, ARGV[3])
redis.call('SET', report, ARGV[2], 'PX', ARGV[3])
return 1
