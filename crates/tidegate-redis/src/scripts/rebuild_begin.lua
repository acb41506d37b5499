-- Marks a partition as being rebuilt, unless it is whole on this server.
-- KEYS[1]  mark
-- ARGV[1]  the rebuild's token
-- returns  1 when it was whole, else 0
-- bound    one key
local mark = KEYS[1]
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
if redis.call('GET', mark) == server then
  return 1
end
redis.call('SET', mark, 'rebuild:' .. ARGV[1])
return 0
