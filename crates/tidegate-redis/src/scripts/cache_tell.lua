-- Appends notices to a stream. Each entry has the number after the one before it, so that readers see what they missed.
-- KEYS[1]  stream
-- ARGV[1]  who tells, ARGV[2] about how many entries are kept, ARGV[3] how long an idle stream is kept (ms)
-- ARGV[4..] messages
-- returns  the last number
-- bound    as many entries as messages
local stream = KEYS[1]
local last = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
local number = last and last[2][1] == 'n' and tonumber(last[2][2])
if not number then
  local time = redis.call('TIME')
  number = time[1] * 1000000 + time[2]
end
-- A server whose memory is full refuses to add, unless a script has written already: this must not be refused, and is bounded.
redis.call('PEXPIRE', stream, ARGV[3])
for i = 4, #ARGV do
  number = number + 1
  local text = string.format('%.0f', number)
  redis.call('XADD', stream, 'MAXLEN', '~', ARGV[2], '*', 'n', text, 't', ARGV[1], 'm', ARGV[i])
end
redis.call('PEXPIRE', stream, ARGV[3])
return string.format('%.0f', number)
