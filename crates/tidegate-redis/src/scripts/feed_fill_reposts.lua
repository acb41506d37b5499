-- Fills the copy of a root's reposts with what was staged before, unless something newer was told.
-- KEYS[1]  reposts, KEYS[2] lease, KEYS[3] what was staged
-- ARGV[1]  version, ARGV[2] life (ms), ARGV[3] how many were staged
-- returns  1; 0: something newer was told; -1: some of what was staged is lost
-- bound    3 keys
local reposts, lease, staged = KEYS[1], KEYS[2], KEYS[3]
local there = string.match(redis.call('HGET', reposts, '') or '', '^[KF](%d+)')
local taken = 0
if not there or tonumber(there) <= tonumber(ARGV[1]) then
  -- The version is one of its fields.
  if redis.call('HLEN', staged) ~= tonumber(ARGV[3]) + 1 then
    taken = -1
  else
    redis.call('UNLINK', reposts)
    redis.call('RENAME', staged, reposts)
    redis.call('PEXPIRE', reposts, ARGV[2])
    taken = 1
  end
end
redis.call('UNLINK', lease, staged)
return taken
