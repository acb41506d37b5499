-- One of several servers moves the end of a lock and learns its fence; it may make a lock anew that it has forgotten.
-- KEYS     holder, fence
-- ARGV[1]  token, ARGV[2] time from now (ms), ARGV[3] the grant's fence or '', ARGV[4] life of the fence (ms)
-- ARGV[5]  '0': makes nothing, '1': makes it anew if it has granted no larger fence since, '2': makes it anew
-- ARGV[6]  the call that it was granted to (16 digits), or '': by the token alone
-- returns  'K', fence, or 'R' (it was made), 'N' (nobody has it), 'A' (another has it, or had it since)
-- bound    1 lock
local holder, fence = KEYS[1], KEYS[2]
local there = redis.call('HMGET', holder, 't', 'f', 'a')
local taught = tonumber(ARGV[3])
if there[1] and there[1] ~= ARGV[1] then
  return { 'A' }
end
local last = tonumber(redis.call('GET', fence) or 0)
local answer = 'K'
if not there[1] then
  if ARGV[5] == '0' or not taught then
    return { 'N' }
  end
  if ARGV[5] == '1' and last > taught then
    return { 'A' }
  end
  answer = 'R'
end
local number = ARGV[3]
if not taught then
  number = there[2]
end
-- By the token alone no call's clean-up ends it any more; see lock_acquire.lua.
local calls = there[3] or ''
if ARGV[6] == '' then
  calls = '*' .. string.gsub(calls, '^%*', '')
elseif not there[1] then
  calls = ARGV[6] .. '.'
end
redis.call('HSET', holder, 't', ARGV[1], 'f', number, 'a', calls)
redis.call('PEXPIRE', holder, ARGV[2])
if tonumber(number) > last then
  redis.call('SET', fence, number, 'PX', ARGV[4])
else
  redis.call('PEXPIRE', fence, ARGV[4])
end
return { answer, number }
