-- Redis time, into how many streams notices are divided, and whether the server has had the cache's keys for all the time.
-- KEYS[1]  layout, KEYS[2] birth
-- ARGV[1]  the caller's number of streams, taken if there is none; ARGV[2] for how long after the last caller (ms)
-- ARGV[3]  a new birth, taken if there is none: what was there before is lost
-- returns  seconds and microseconds since 1970, the number of streams, the birth
-- bound    2 keys
local layout, birth = KEYS[1], KEYS[2]
local there = redis.call('GET', layout)
local born = redis.call('GET', birth)
if there == ARGV[1] then
  redis.call('PEXPIRE', layout, ARGV[2])
elseif not there then
  -- A server whose memory is full refuses to add, unless a script has written already: this must not be refused.
  redis.call('UNLINK', layout)
  redis.call('SET', layout, ARGV[1], 'PX', ARGV[2])
  there = ARGV[1]
end
if born then
  redis.call('PEXPIRE', birth, ARGV[2])
else
  redis.call('UNLINK', birth)
  redis.call('SET', birth, ARGV[3], 'PX', ARGV[2])
  born = ARGV[3]
end
local time = redis.call('TIME')
return { time[1], time[2], there, born }
