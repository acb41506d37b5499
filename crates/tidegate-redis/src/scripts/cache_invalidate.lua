-- Deletes every entry of a key, with its leases and refreshes, and raises the floor.
-- KEYS[1]  notes, KEYS[2..5] slots, KEYS[6..9] refreshers
-- ARGV[1]  the floor ('' for none), ARGV[2] its life (ms)
-- ARGV[3]  the channel and ARGV[4] the words that wake whoever waits
-- returns  'H'
-- bound    18 bytes of four entries are read
local notes = KEYS[1]
local waited = false
for i = 2, 5 do
  local head = redis.call('GETRANGE', KEYS[i], 0, 17)
  waited = waited or (string.byte(head, 1) == 76 and (string.byte(head, 18) or 0) ~= 0)
end
redis.call('UNLINK', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9])
if ARGV[1] ~= '' then
  local floor = tonumber(redis.call('HGET', notes, 'v') or '')
  if not floor or floor < tonumber(ARGV[1]) then
    redis.call('HSET', notes, 'v', ARGV[1])
  end
  if redis.call('PTTL', notes) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', notes, ARGV[2])
  end
end
if waited then
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return { 'H' }
