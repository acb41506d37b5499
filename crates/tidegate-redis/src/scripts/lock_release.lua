-- Gives a lock back and hands it to the first live waiter; with '1' also leaves the line.
-- KEYS     holder, fence, line, waiters, alive
-- ARGV[1]  token, ARGV[2] '1': leaves the line, ARGV[3] time to confirm (ms), ARGV[4] life of the fence (ms)
-- ARGV[5]  what channels begin with, ARGV[6] the lock's name: told, after its token, to who was handed it
-- returns  1: it was the caller's, else 0
-- bound    the line's waiters, 10,000
local holder, fence, line, waiters, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local held = 0
if redis.call('HGET', holder, 't') == ARGV[1] then
  redis.call('DEL', holder)
  held = 1
end
if ARGV[2] == '1' then
  redis.call('ZREM', line, ARGV[1])
  redis.call('HDEL', waiters, ARGV[1])
end
if redis.call('EXISTS', holder) == 1 then
  return held
end
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)
while true do
  local first = redis.call('ZRANGE', line, 0, 0)[1]
  if not first then
    return held
  end
  local waiter = redis.call('HGET', waiters, first) or ''
  redis.call('ZREM', line, first)
  redis.call('HDEL', waiters, first)
  local whose = string.sub(waiter, 1, 16)
  if tonumber(redis.call('ZSCORE', alive, whose) or 0) >= now then
    local last = math.max(tonumber(redis.call('GET', fence) or 0) + 1, stamp)
    local least = tonumber(string.sub(waiter, 17))
    if least and last <= least then
      last = least + 1
    end
    local number = string.format('%.0f', last)
    redis.call('SET', fence, number, 'PX', ARGV[4])
    redis.call('HSET', holder, 't', first, 'f', number)
    redis.call('PEXPIRE', holder, ARGV[3])
    redis.call('PUBLISH', ARGV[5] .. whose, first .. ' ' .. ARGV[6])
    return held
  end
end
