-- Deletes what is no copy: strangers left it under our keys.
-- KEYS[1..] copies, heads and news
-- ARGV[1..] the type that each must have
-- returns  how many were deleted
-- bound    the keys
local gone = 0
for k = 1, #KEYS do
  local there = redis.call('TYPE', KEYS[k]).ok
  if there ~= 'none' and there ~= ARGV[k] then
    gone = gone + redis.call('UNLINK', KEYS[k])
  end
end
return gone
