-- Redis time, and into how many streams notices are divided.
-- KEYS[1]  layout
-- ARGV[1]  the caller's number of streams, taken if there is none; ARGV[2] for how long after the last caller (ms)
-- returns  seconds and microseconds since 1970, the number of streams
-- bound    1 key
local layout = KEYS[1]
local there = redis.call('GET', layout)
if there == ARGV[1] then
  redis.call('PEXPIRE', layout, ARGV[2])
elseif not there then
  -- A server whose memory is full refuses to add, unless a script has written already: this must not be refused.
  redis.call('UNLINK', layout)
  redis.call('SET', layout, ARGV[1], 'PX', ARGV[2])
  there = ARGV[1]
end
local time = redis.call('TIME')
return { time[1], time[2], there }
