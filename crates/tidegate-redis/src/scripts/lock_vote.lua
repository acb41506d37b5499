-- One of several servers takes a lock for a caller, or keeps it, and says whether its word counts.
-- KEYS     holder, fence, born
-- ARGV[1]  token, ARGV[2] time (ms), ARGV[3] floor or '', ARGV[4] longest time of any lock (ms), ARGV[5] life of the fence (ms)
-- ARGV[6]  which call asks (16 digits), ARGV[7] most calls of one token
-- returns  'G', fence, end of the grant (ms), barred for (ms), 1 if another call was told so, or 'H', what is left (ms), barred for (ms),
--          or 'S' (no fence is left), or 'M', the longest time it was told before
-- bound    1 lock
-- born: hash of r (the run of the server that wrote it), b (when, ms), m (longest time, ms). It is missing after a flush and of
-- another run after a start or a failover: then what was granted before may be forgotten, and the word does not count until all of
-- it has ended.
local holder, fence, born = KEYS[1], KEYS[2], KEYS[3]
local token, ttl, floor, longest = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)

local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local there = redis.call('HMGET', born, 'r', 'b', 'm')
local barred = longest
if there[1] ~= run then
  redis.call('HSET', born, 'r', run, 'b', string.format('%.0f', now), 'm', ARGV[4])
elseif tonumber(there[3]) ~= longest then
  return { 'M', there[3] }
else
  barred = math.max(0, tonumber(there[2]) + longest - now)
end
barred = string.format('%.0f', barred)

local held = redis.call('HMGET', holder, 't', 'f', 'a')
if held[1] and held[1] ~= token then
  return { 'H', math.max(redis.call('PTTL', holder), 1), barred }
end
local number, other = held[2], false
-- The calls that were told, with this one; see lock_acquire.lua.
local mark, most = ARGV[6] .. '.', tonumber(ARGV[7])
local calls = mark
if number then
  calls = held[3] or '*'
  if not string.find(calls, mark, 1, true) then
    if #calls >= most * 17 then
      calls = '*' .. string.sub(calls, #calls - (most - 1) * 17 + 1)
    end
    calls = calls .. mark
  end
  other = #calls > 17
end
if not number or (floor and tonumber(number) <= floor) then
  other = false
  local last = math.max(tonumber(redis.call('GET', fence) or 0) + 1, stamp)
  if floor and last <= floor then
    last = floor + 1
  end
  if last > 9007199254740991 then
    return { 'S' }
  end
  number = string.format('%.0f', last)
  redis.call('SET', fence, number, 'PX', ARGV[5])
end
redis.call('HSET', holder, 't', token, 'f', number, 'a', calls)
redis.call('PEXPIRE', holder, ARGV[2])
return { 'G', number, string.format('%.0f', now + ttl), barred, other and 1 or 0 }
