-- Gives a lock back and hands it to the first live waiter; for one call, that call leaves the line, too.
-- KEYS     holder, fence, line, waiters, alive
-- ARGV[1]  token, ARGV[2] the call (16 digits), or '': whichever were told, ARGV[3] '1': its caller had it and is done with it
-- ARGV[4]  time to confirm (ms), ARGV[5] life of the fence (ms)
-- ARGV[6]  what channels begin with, ARGV[7] the lock's name: told, after its token, to who was handed it
-- returns  1: it was the caller's and is nobody's now, else 0
-- bound    the line's waiters, 10,000
-- See lock_acquire.lua for what the keys hold.
local holder, fence, line, waiters, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, mark = ARGV[1], ARGV[2] .. '.'
local there = redis.call('HMGET', holder, 't', 'a')
local held = there[1] == token
-- As most find it: nobody waits, and no other call has it.
if held and (mark == '.' or there[2] == mark) and redis.call('EXISTS', line) == 0 then
  redis.call('DEL', holder)
  return 1
end
if mark ~= '.' then
  local waiter = redis.call('HGET', waiters, token)
  local at = waiter and string.find(waiter, mark, 1, true)
  if at then
    waiter = string.sub(waiter, 1, at - 1) .. string.sub(waiter, at + 34)
    if string.sub(waiter, -1) == '|' then
      redis.call('ZREM', line, token)
      redis.call('HDEL', waiters, token)
    else
      redis.call('HSET', waiters, token, waiter)
    end
  end
  local calls = there[2]
  at = held and calls and string.find(calls, mark, 1, true)
  held = false
  if at then
    local before = string.sub(calls, 1, at - 1)
    if ARGV[3] == '1' then
      before = string.match(before, '^%??')
    end
    calls = before .. string.sub(calls, at + 17)
    held = calls == '' or calls == '?'
    if not held then
      redis.call('HSET', holder, 'a', calls)
    end
  end
end
if held then
  redis.call('DEL', holder)
end
held = held and 1 or 0
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
  local calls, processes = '?', {}
  for call, whose in string.gmatch(waiter, '(%x+)%.(%x+);') do
    if tonumber(redis.call('ZSCORE', alive, whose) or 0) >= now then
      calls = calls .. call .. '.'
      processes[whose] = true
    end
  end
  local last = math.max(tonumber(redis.call('GET', fence) or 0) + 1, stamp)
  local least = tonumber(string.match(waiter, '^(%d+)|'))
  if least and last <= least then
    last = least + 1
  end
  if #calls > 1 and last <= 9007199254740991 then
    local number = string.format('%.0f', last)
    redis.call('SET', fence, number, 'PX', ARGV[5])
    redis.call('HSET', holder, 't', first, 'f', number, 'a', calls)
    redis.call('PEXPIRE', holder, ARGV[4])
    for whose in pairs(processes) do
      redis.call('PUBLISH', ARGV[6] .. whose, first .. ' ' .. ARGV[7])
    end
    return held
  end
end
