-- Reposts of roots, each as they are at one moment: all of one with few, else those of the users that are asked for.
-- KEYS[1..] reposts
-- ARGV[1]  up to how many are few; ARGV[2..] of each root how many users, or -1: none are asked for, and the users
-- returns  of each root a list: empty if it is not known; 'A' and all fields and values; 'M' and how many there are; 'S' and
--          the reposts of the users in their order
-- bound    the arguments, and the fields of roots with few
local few = tonumber(ARGV[1])
local found, at = {}, 2
for k = 1, #KEYS do
  local users = tonumber(ARGV[at])
  at = at + 1
  local one = {}
  if string.sub(redis.call('HGET', KEYS[k], '') or '', 1, 1) == 'K' then
    local count = redis.call('HLEN', KEYS[k]) - 1
    if count <= few then
      one = { 'A', redis.call('HGETALL', KEYS[k]) }
    elseif users < 0 then
      one = { 'M', count }
    else
      one = { 'S' }
      for i = 0, users - 1, 4000 do
        local last = math.min(i + 4000, users) - 1
        one[#one + 1] = redis.call('HMGET', KEYS[k], unpack(ARGV, at + i, at + last))
      end
    end
  end
  found[k] = one
  at = at + math.max(users, 0)
end
return found
