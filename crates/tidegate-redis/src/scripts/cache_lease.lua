-- Takes the lease of a key if nothing is there; else gives what is there, and marks another's lease as waited for.
-- KEYS[1]  slot, KEYS[2] notes
-- ARGV[1]  bytes of the lease, ARGV[2] its life (ms)
-- returns  'G', floor ('' for none), failures; or 'P', what is there
-- bound    one entry
local slot, notes = KEYS[1], KEYS[2]
if redis.call('SET', slot, ARGV[1], 'PX', ARGV[2], 'NX') then
  local known = redis.call('HMGET', notes, 'v', 'f')
  return { 'G', known[1] or '', known[2] or '0' }
end
local there = redis.call('GET', slot)
if string.byte(there, 1) == 76 and string.byte(there, 18) == 0 then
  -- Keeps its life.
  redis.call('SETRANGE', slot, 17, '\1')
  there = string.sub(there, 1, 17) .. '\1' .. string.sub(there, 19)
end
return { 'P', there }
