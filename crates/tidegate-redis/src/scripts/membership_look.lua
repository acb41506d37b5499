-- The state of a membership filter and buckets of a generation, as they are at one moment.
-- KEYS[1]  state, KEYS[2] count of additions, KEYS[3..] buckets
-- ARGV     none
-- returns  what the server calls itself, the state, the count, then each bucket; false for what is not there
-- bound    256 buckets of 1 KiB
local reply = { string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '' }
local found = redis.call('MGET', KEYS[1], unpack(KEYS, 2))
for i = 1, #KEYS do
  reply[i + 1] = found[i]
end
return reply
