-- Takes a lock, keeps it, or joins its line; hands a free one to the first live waiter.
-- KEYS     holder, fence, line, waiters, alive
-- ARGV[1]  token, ARGV[2] process, ARGV[3] time (ms), ARGV[4] floor or '', ARGV[5] '1': joins the line
-- ARGV[6]  time to confirm (ms), ARGV[7] how long a sign of life counts (ms), ARGV[8] most waiters, ARGV[9] life of the line (ms)
-- ARGV[10] life of the fence (ms), ARGV[11] what channels begin with, ARGV[12] the lock's name: told, after its token, to who was handed it
-- returns  'G', fence, end of the grant (ms), or 'H', what is left (ms), how many are before in the line or -1, or 'F'
-- bound    the line's waiters that are dead (each is removed once), 10,000
-- holder: hash of t (token), f (fence). line: tokens by arrival. waiters: token -> process (16), floor. All expire.
local holder, fence, line, waiters, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, process, ttl, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)

local function next_fence(least)
  local last = tonumber(redis.call('GET', fence) or 0)
  last = math.max(last + 1, stamp)
  if least and last <= least then
    last = least + 1
  end
  local text = string.format('%.0f', last)
  redis.call('SET', fence, text, 'PX', ARGV[10])
  return text
end

local function give(to, number, ms)
  redis.call('HSET', holder, 't', to, 'f', number)
  redis.call('PEXPIRE', holder, string.format('%.0f', ms))
end

local function again()
  local there = redis.call('HMGET', holder, 't', 'f')
  if there[1] ~= token then
    return nil
  end
  local number = there[2]
  if floor and tonumber(number) <= floor then
    number = next_fence(floor)
  end
  give(token, number, ttl)
  return { 'G', number, string.format('%.0f', now + ttl) }
end

-- The first live waiter is given a lock that nobody holds.
local function hand_over()
  if redis.call('EXISTS', holder) == 1 then
    return
  end
  while true do
    local first = redis.call('ZRANGE', line, 0, 0)[1]
    if not first then
      return
    end
    local waiter = redis.call('HGET', waiters, first) or ''
    redis.call('ZREM', line, first)
    redis.call('HDEL', waiters, first)
    local whose = string.sub(waiter, 1, 16)
    if tonumber(redis.call('ZSCORE', alive, whose) or 0) >= now then
      give(first, next_fence(tonumber(string.sub(waiter, 17))), tonumber(ARGV[6]))
      redis.call('PUBLISH', ARGV[11] .. whose, first .. ' ' .. ARGV[12])
      return
    end
  end
end

local granted = again()
if granted then
  return granted
end
local waits = redis.call('ZSCORE', line, token)
if not waits and ARGV[5] == '1' then
  if redis.call('ZCARD', line) >= tonumber(ARGV[8]) then
    return { 'F' }
  end
  local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
  local score = math.max(tonumber(last or 0) + 1, stamp)
  redis.call('ZADD', line, string.format('%.0f', score), token)
  redis.call('HSET', waiters, token, process .. ARGV[4])
  redis.call('PEXPIRE', line, ARGV[9])
  redis.call('PEXPIRE', waiters, ARGV[9])
  waits = true
end
if waits then
  redis.call('ZADD', alive, string.format('%.0f', now + tonumber(ARGV[7])), process)
  redis.call('PEXPIRE', alive, ARGV[9])
end
hand_over()
granted = again()
if granted then
  return granted
end
local left = redis.call('PTTL', holder)
if left == -2 then
  local number = next_fence(floor)
  give(token, number, ttl)
  return { 'G', number, string.format('%.0f', now + ttl) }
end
return { 'H', math.max(left, 1), redis.call('ZRANK', line, token) or -1 }
