-- Sets bits of ids, if the state is what the caller believes. A bucket that is lost stays lost: it refuses nobody.
-- KEYS[1]  state, KEYS[2..] buckets and counts of additions
-- ARGV[1]  the state that the caller believes in, ARGV[2] how long it is kept (ms)
-- ARGV[3]  bytes of a bucket
-- ARGV[4..] for each id and generation: number of the bucket's key, of the count's key, of bits, then the bits
-- returns  'H'; or 'C', the state
-- bound    256 ids and generations of at most 32 bits
local state = KEYS[1]
local there = redis.call('GET', state) or ''
if there ~= ARGV[1] then
  return { 'C', there }
end
-- A server whose memory is full refuses to add, unless a script has written already: these bits have their room.
redis.call('PEXPIRE', state, ARGV[2])
local at = 4
while ARGV[at] do
  local bucket, count = KEYS[tonumber(ARGV[at])], KEYS[tonumber(ARGV[at + 1])]
  local bits = tonumber(ARGV[at + 2])
  if redis.call('STRLEN', bucket) == tonumber(ARGV[3]) then
    local new = false
    for i = at + 3, at + 2 + bits do
      new = redis.call('SETBIT', bucket, ARGV[i], 1) == 0 or new
    end
    if new and redis.call('EXISTS', count) == 1 then
      redis.call('INCR', count)
    end
  end
  at = at + 3 + bits
end
return { 'H' }
