-- Puts a new state in the place of the one that the caller believes in.
-- KEYS[1]  state, KEYS[2] lead
-- ARGV[1]  what must be there ('' for nothing), ARGV[2] what will be, ARGV[3] how long it is kept (ms)
-- ARGV[4]  who must lead ('' for whoever does), ARGV[5] what the server must call itself then
-- returns  'H'; or 'C', the state
-- bound    2 keys
local state, lead = KEYS[1], KEYS[2]
local there = redis.call('GET', state) or ''
if there == ARGV[2] and ARGV[2] ~= ARGV[1] then
  -- Done already, and the answer was lost.
  return { 'H' }
end
if there ~= ARGV[1] then
  return { 'C', there }
end
if ARGV[4] ~= '' then
  local home = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
  if redis.call('GET', lead) ~= ARGV[4] or home ~= ARGV[5] then
    return { 'C', there }
  end
end
if ARGV[2] == '' then
  redis.call('UNLINK', state)
else
  redis.call('SET', state, ARGV[2], 'PX', ARGV[3])
end
return { 'H' }
