-- Lengthens a lease or a refresh, from now.
-- KEYS[1]  slot, KEYS[2] refresher
-- ARGV[1]  what the entry must begin with, ARGV[2] token of the refresh ('' for a lease), ARGV[3] how long (ms)
-- returns  'H', or 'L': it is no longer the caller's
-- bound    17 bytes of one entry
local slot, refresher = KEYS[1], KEYS[2]
if redis.call('GETRANGE', slot, 0, 16) ~= ARGV[1] then
  return { 'L' }
end
if ARGV[2] == '' then
  redis.call('PEXPIRE', slot, ARGV[3])
elseif redis.call('GET', refresher) == ARGV[2] then
  redis.call('PEXPIRE', refresher, ARGV[3])
else
  return { 'L' }
end
return { 'H' }
