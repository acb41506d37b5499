-- A step through the keys of the server that holds a key.
-- KEYS[1]  any; it is left alone
-- ARGV[1]  cursor, 0 at first; ARGV[2] pattern; ARGV[3] about how many keys are looked at
-- returns  what tells the server from every other, the next cursor (0: that was all), the keys that were found
-- bound    as SCAN with COUNT ARGV[3], 1 INFO
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
return { server, found[1], found[2] }
