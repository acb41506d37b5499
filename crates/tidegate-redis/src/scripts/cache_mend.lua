-- Deletes what foreign clients put under a key's names that is of another type than ours.
-- KEYS[1]  notes, KEYS[2..9] slots and refreshers
-- ARGV     none
-- returns  how many were deleted
-- bound    9 keys
local gone = 0
for i = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[i])['ok']
  local own = i == 1 and 'hash' or 'string'
  if kind ~= 'none' and kind ~= own then
    gone = gone + redis.call('UNLINK', KEYS[i])
  end
end
return gone
