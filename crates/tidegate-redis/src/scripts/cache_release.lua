-- Gives a lease or a refresh up.
-- KEYS[1]  slot, KEYS[2] refresher
-- ARGV[1]  what the entry must begin with, ARGV[2] token of the refresh ('' for a lease)
-- ARGV[3]  the channel and ARGV[4] the words that wake whoever waits
-- returns  'H', or 'L': it is no longer the caller's
-- bound    18 bytes of one entry
local slot, refresher = KEYS[1], KEYS[2]
local head = redis.call('GETRANGE', slot, 0, 17)
if string.sub(head, 1, 17) ~= ARGV[1] then
  return { 'L' }
end
if ARGV[2] == '' then
  redis.call('UNLINK', slot)
elseif redis.call('GET', refresher) == ARGV[2] then
  redis.call('UNLINK', refresher)
end
if string.byte(head, 1) == 76 and (string.byte(head, 18) or 0) ~= 0 then
  redis.call('PUBLISH', ARGV[3], ARGV[4])
end
return { 'H' }
