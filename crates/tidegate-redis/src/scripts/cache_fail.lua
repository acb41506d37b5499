-- A load failed: its lease becomes an error that all share, its refresh keeps others from trying for a while.
-- KEYS[1]  slot, KEYS[2] refresher, KEYS[3] notes
-- ARGV[1]  what the entry must begin with, ARGV[2] token of the refresh ('' for a lease)
-- ARGV[3]  bytes of the error, ARGV[4] for how long (ms), ARGV[5] how long failures are remembered (ms)
-- ARGV[6]  the channel and ARGV[7] the words that wake whoever waits
-- returns  'H', or 'L': it is no longer the caller's
-- bound    18 bytes of one entry are read
local slot, refresher, notes = KEYS[1], KEYS[2], KEYS[3]
local head = redis.call('GETRANGE', slot, 0, 17)
if string.sub(head, 1, 17) ~= ARGV[1] then
  return { 'L' }
end
if ARGV[2] == '' then
  redis.call('SET', slot, ARGV[3], 'PX', ARGV[4])
elseif redis.call('GET', refresher) == ARGV[2] then
  redis.call('PEXPIRE', refresher, ARGV[4])
else
  return { 'L' }
end
redis.call('HINCRBY', notes, 'f', 1)
if redis.call('PTTL', notes) < tonumber(ARGV[5]) then
  redis.call('PEXPIRE', notes, ARGV[5])
end
if string.byte(head, 1) == 76 and (string.byte(head, 18) or 0) ~= 0 then
  redis.call('PUBLISH', ARGV[6], ARGV[7])
end
return { 'H' }
