-- Marks a partition as whole on this server, unless its data were lost since the rebuild began.
-- KEYS[1]  mark
-- ARGV[1]  the rebuild's token
-- returns  1 when it is whole now, else 0
-- bound    one key
local mark = KEYS[1]
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or ''
local now = redis.call('GET', mark)
if now == server then
  return 1
end
if now ~= 'rebuild:' .. ARGV[1] then
  return 0
end
redis.call('SET', mark, server)
return 1
