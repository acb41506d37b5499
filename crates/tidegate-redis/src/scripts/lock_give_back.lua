-- Gives a lock back on one of several servers.
-- KEYS[1]  holder
-- ARGV[1]  token, ARGV[2] the call (16 digits), or '': whichever were told, ARGV[3] '1': its caller had it and is done with it
-- returns  1: it was the caller's and is nobody's now, else 0
-- bound    1 lock
-- See lock_acquire.lua for the calls.
local holder = KEYS[1]
local mark = ARGV[2] .. '.'
local there = redis.call('HMGET', holder, 't', 'a')
if there[1] ~= ARGV[1] then
  return 0
end
if mark ~= '.' then
  local calls = there[2]
  local at = calls and string.find(calls, mark, 1, true)
  if not at then
    return 0
  end
  local before = string.sub(calls, 1, at - 1)
  if ARGV[3] == '1' then
    before = ''
  end
  calls = before .. string.sub(calls, at + 17)
  if calls ~= '' then
    redis.call('HSET', holder, 'a', calls)
    return 0
  end
end
return redis.call('DEL', holder)
