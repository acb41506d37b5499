-- Takes, renews or gives back the lead of who builds a membership filter.
-- KEYS[1]  lead
-- ARGV[1]  who asks, ARGV[2] for how long (ms), 0 to give it back
-- returns  1 if nobody else leads
-- bound    1 key
local lead = KEYS[1]
local there = redis.call('GET', lead)
if there and there ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('UNLINK', lead)
else
  redis.call('SET', lead, ARGV[1], 'PX', ARGV[2])
end
return 1
