-- Fills the copy of an author's posts, unless something newer was told.
-- KEYS[1]  set, KEYS[2] head, KEYS[3] lease
-- ARGV[1]  version, ARGV[2] the author in short, ARGV[3] life (ms), ARGV[4..] members
-- returns  1, or 0: something newer was told
-- bound    the arguments
local set, head, lease = KEYS[1], KEYS[2], KEYS[3]
local there = string.match(redis.call('ZRANGE', set, 0, 0)[1] or '', '^%z[KF](%d+)')
if there and tonumber(there) > tonumber(ARGV[1]) then
  redis.call('UNLINK', lease)
  return 0
end
-- First, so that a server whose memory is full refuses before anything is deleted.
redis.call('SET', head, ARGV[2], 'PX', ARGV[3])
redis.call('UNLINK', set)
local members = { 0, '\0' .. ARGV[2] }
for i = 4, #ARGV do
  members[#members + 1] = 0
  members[#members + 1] = ARGV[i]
  if #members >= 2000 then
    redis.call('ZADD', set, unpack(members))
    members = {}
  end
end
if #members > 0 then
  redis.call('ZADD', set, unpack(members))
end
redis.call('PEXPIRE', set, ARGV[3])
redis.call('UNLINK', lease)
return 1
