-- Which server holds a key.
-- KEYS[1]  any; it is left alone
-- ARGV     none
-- returns  what tells the server from every other, from itself before it was started again, and from itself before another was
--          the master in between
-- bound    2 INFO
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local reign = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
return server .. ' ' .. reign
