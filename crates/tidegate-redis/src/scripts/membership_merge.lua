-- Sets the bits of whole buckets, if the state is what the caller believes. A bucket that is lost stays lost.
-- KEYS[1]  state, KEYS[2] count of additions, KEYS[3] room for one bucket, KEYS[4..] buckets
-- ARGV[1]  the state that the caller believes in, ARGV[2] how many additions it has then ('': as counted)
-- ARGV[3]  bytes of a bucket
-- ARGV[4..] the bits of each bucket
-- returns  'H'; or 'C', the state
-- bound    256 buckets of 1 KiB
local state, count, room = KEYS[1], KEYS[2], KEYS[3]
local there = redis.call('GET', state) or ''
if there ~= ARGV[1] then
  return { 'C', there }
end
for i = 4, #KEYS do
  if redis.call('STRLEN', KEYS[i]) == tonumber(ARGV[3]) then
    -- What BITOP writes has no end of its own.
    local left = redis.call('PTTL', KEYS[i])
    redis.call('SET', room, ARGV[i], 'PX', 60000)
    redis.call('BITOP', 'OR', KEYS[i], KEYS[i], room)
    redis.call('PEXPIRE', KEYS[i], math.max(left, 1))
  end
end
redis.call('UNLINK', room)
if ARGV[2] ~= '' then
  redis.call('SET', count, ARGV[2], 'XX', 'KEEPTTL')
end
return { 'H' }
