-- Which server holds a partition.
-- KEYS[1]  news; they are left alone
-- ARGV     none
-- returns  what tells the server from every other, and from itself before it was started again
-- bound    1 INFO
return string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
