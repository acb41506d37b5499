-- Says that what a partition has is as new as what was told, if it is: its server has been the one that told for all the time.
-- KEYS[1]  mark: which server that was, and when this was last said
-- ARGV[1]  now (ms, of the caller's host), ARGV[2] how long a mark is kept (ms), ARGV[3] how old the mark of another server may be
--          (ms) for the last floors to make up for what was lost since; ARGV[4] the server of which the caller has made up for it,
--          or nothing
-- returns  this server; 'ok', 'young': the last floors are to be repeated, 'old': more is missing than floors are remembered for
-- bound    2 INFO, 2 writes
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
local reign = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
local mark = redis.call('HMGET', KEYS[1], 'server', 'at')
if mark[1] and mark[1] ~= server and ARGV[4] ~= server .. ' ' .. reign then
  local age = tonumber(ARGV[1]) - (tonumber(mark[2]) or 0)
  return { server .. ' ' .. reign, age <= tonumber(ARGV[3]) and 'young' or 'old' }
end
redis.call('HSET', KEYS[1], 'server', server, 'at', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { server .. ' ' .. reign, 'ok' }
