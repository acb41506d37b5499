-- Moves the end of a lock that is still the caller's. It never makes a key.
-- KEYS     holder, fence
-- ARGV[1]  token, ARGV[2] time from now (ms), ARGV[3] life of the fence (ms), ARGV[4] '1': by the token alone
-- returns  fence and end (ms), or '' if it is lost
-- bound    1 lock
local holder, fence = KEYS[1], KEYS[2]
local there = redis.call('HMGET', holder, 't', 'f')
if there[1] ~= ARGV[1] then
  return ''
end
if ARGV[4] == '1' then
  -- Somebody is told that it is held: no call's clean-up ends it any more (see lock_acquire.lua).
  local calls = redis.call('HGET', holder, 'a') or ''
  redis.call('HSET', holder, 'a', '*' .. string.gsub(calls, '^[?*]', ''))
end
redis.call('PEXPIRE', holder, ARGV[2])
redis.call('PEXPIRE', fence, ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return { there[2], string.format('%.0f', now + tonumber(ARGV[2])) }
