-- Takes a lock, keeps it, or joins its line; hands a free one to the first live waiter.
-- KEYS     holder, fence, line, waiters, alive
-- ARGV[1]  token, ARGV[2] process, ARGV[3] time (ms), ARGV[4] floor or '', ARGV[5] '1': joins the line
-- ARGV[6]  time to confirm (ms), ARGV[7] how long a sign of life counts (ms), ARGV[8] most waiters, ARGV[9] life of the line (ms)
-- ARGV[10] life of the fence (ms), ARGV[11] what channels begin with, ARGV[12] the lock's name: told, after its token, to who was handed it
-- ARGV[13] which call asks (16 digits), ARGV[14] most calls of one token
-- returns  'G', fence, end of the grant (ms), 1 if another call was told so, or 'H', what is left (ms), how many are before in the line
--          or -1, 1 if it was not in it before, or 'F' (the line is full), or 'S' (no fence is left)
-- bound    the line's waiters that are dead (each is removed once), 10,000
-- holder: hash of t (token), f (fence), a (calls that were told of it, each 'CALL.', oldest first; '*' before them: others, too; '?': it
-- was handed to these and none has answered). line: tokens by arrival. waiters: token -> floor '|' calls, each 'CALL.PROCESS;'. All expire.
local holder, fence, line, waiters, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local token, process, ttl, floor = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mark, most = ARGV[13] .. '.', tonumber(ARGV[14])
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)

-- Nothing if it would not be below 2^53.
local function next_fence(least)
  local last = tonumber(redis.call('GET', fence) or 0)
  last = math.max(last + 1, stamp)
  if least and last <= least then
    last = least + 1
  end
  if last > 9007199254740991 then
    return nil
  end
  local text = string.format('%.0f', last)
  redis.call('SET', fence, text, 'PX', ARGV[10])
  return text
end

local function give(to, number, ms, calls)
  redis.call('HSET', holder, 't', to, 'f', number, 'a', calls)
  redis.call('PEXPIRE', holder, string.format('%.0f', ms))
end

-- The calls that were told, with this one, and whether there was another.
local function told(calls)
  if not calls then
    calls = '*'
  elseif string.sub(calls, 1, 1) == '?' then
    return mark, false
  end
  if not string.find(calls, mark, 1, true) then
    if #calls >= most * 17 then
      calls = '*' .. string.sub(calls, #calls - (most - 1) * 17 + 1)
    end
    calls = calls .. mark
  end
  return calls, #calls > 17
end

local function again(there)
  if there[1] ~= token then
    return nil
  end
  local number = there[2]
  local calls, other = told(there[3])
  if floor and tonumber(number) <= floor then
    number = next_fence(floor)
    other = false
    if not number then
      return { 'S' }
    end
  end
  give(token, number, ttl, calls)
  return { 'G', number, string.format('%.0f', now + ttl), other and 1 or 0 }
end

-- The first live waiter is given a lock that nobody holds, and told wherever it waits.
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
    local calls, processes = '?', {}
    for call, whose in string.gmatch(waiter, '(%x+)%.(%x+);') do
      if tonumber(redis.call('ZSCORE', alive, whose) or 0) >= now then
        calls = calls .. call .. '.'
        processes[whose] = true
      end
    end
    local number = #calls > 1 and next_fence(tonumber(string.match(waiter, '^(%d+)|')))
    if number then
      give(first, number, tonumber(ARGV[6]), calls)
      for whose in pairs(processes) do
        redis.call('PUBLISH', ARGV[11] .. whose, first .. ' ' .. ARGV[12])
      end
      return
    end
  end
end

-- Stands in the line, where the token stands already if it does.
local function join(there)
  local least, calls = ARGV[4], ''
  if there then
    local waiter = redis.call('HGET', waiters, token) or ''
    local before = string.match(waiter, '^(%d+)|')
    if before and not (floor and floor > tonumber(before)) then
      least = before
    end
    calls = string.match(waiter, '|(.*)$') or ''
  else
    local last = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2]
    local score = math.max(tonumber(last or 0) + 1, stamp)
    redis.call('ZADD', line, string.format('%.0f', score), token)
  end
  local call = mark .. process .. ';'
  if not string.find(calls, call, 1, true) then
    if #calls >= most * 34 then
      calls = string.sub(calls, 35)
    end
    calls = calls .. call
    redis.call('PEXPIRE', line, ARGV[9])
  end
  redis.call('HSET', waiters, token, least .. '|' .. calls)
  redis.call('PEXPIRE', waiters, ARGV[9])
end

-- Nobody has it: it is the caller's.
local function first()
  local number = next_fence(floor)
  if not number then
    return { 'S' }
  end
  give(token, number, ttl, mark)
  return { 'G', number, string.format('%.0f', now + ttl), 0 }
end

local there = redis.call('HMGET', holder, 't', 'f', 'a')
-- As most find it: nobody waits, and nobody has it.
if not there[1] and redis.call('EXISTS', line) == 0 then
  return first()
end
local granted = again(there)
if granted then
  return granted
end
local waits, joined = redis.call('ZSCORE', line, token), 0
if ARGV[5] == '1' then
  if not waits and redis.call('ZCARD', line) >= tonumber(ARGV[8]) then
    return { 'F' }
  end
  join(waits)
  joined = waits and 0 or 1
  waits = true
end
if waits then
  redis.call('ZADD', alive, string.format('%.0f', now + tonumber(ARGV[7])), process)
  redis.call('PEXPIRE', alive, ARGV[9])
end
hand_over()
granted = again(redis.call('HMGET', holder, 't', 'f', 'a'))
if granted then
  return granted
end
local left = redis.call('PTTL', holder)
if left == -2 then
  return first()
end
return { 'H', math.max(left, 1), redis.call('ZRANK', line, token) or -1, joined }
