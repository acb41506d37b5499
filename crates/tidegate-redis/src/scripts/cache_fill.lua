-- Stores what was loaded, if the lease or the value it began from is still there and nothing newer is known.
-- KEYS[1]  slot, KEYS[2] refresher, KEYS[3] notes
-- ARGV[1]  what the entry must begin with, ARGV[2] token of the refresh ('' for a lease)
-- ARGV[3]  the new bytes, ARGV[4] their life (ms), ARGV[5] their version ('' for none)
-- ARGV[6]  the channel and ARGV[7] the words that wake whoever waits
-- returns  'H'; 'L': it is no longer the caller's; 'B', version: the bytes are older than this
-- bound    26 bytes of one entry are read
local slot, refresher, notes = KEYS[1], KEYS[2], KEYS[3]
local head = redis.call('GETRANGE', slot, 0, 25)
if string.sub(head, 1, 17) ~= ARGV[1] then
  return { 'L' }
end
local known = redis.call('HMGET', notes, 'v', 'f')
local least = tonumber(known[1] or '')
local version = tonumber(ARGV[5])
if version then
  if string.byte(head, 1) ~= 76 and #head == 26 then
    local present = struct.unpack('>I8', head, 19)
    -- All ones are no version; a double shows them as more than the largest.
    if present <= 9007199254740991 and (not least or present > least) then
      least = present
    end
  end
  if least and version < least then
    return { 'B', string.format('%.0f', least) }
  end
elseif least and string.byte(ARGV[3], 1) == 65 then
  -- "There is none", from a source that may not have the row yet.
  return { 'B', string.format('%.0f', least) }
end
redis.call('SET', slot, ARGV[3], 'PX', ARGV[4])
if ARGV[2] ~= '' and redis.call('GET', refresher) == ARGV[2] then
  redis.call('UNLINK', refresher)
end
if known[2] and known[2] ~= '0' then
  redis.call('HSET', notes, 'f', '0')
end
if string.byte(head, 1) == 76 and (string.byte(head, 18) or 0) ~= 0 then
  redis.call('PUBLISH', ARGV[6], ARGV[7])
end
return { 'H' }
