-- Takes, keeps or gives up the right to rebuild the index.
-- KEYS[1]  rebuild
-- ARGV[1]  who asks, ARGV[2] for how long, milliseconds; 0 gives it up
-- returns  1 when it is the asker's now, else 0
-- bound    one key, which expires
local rebuild = KEYS[1]
local owner = redis.call('GET', rebuild)
if owner and owner ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', rebuild)
  return 0
end
redis.call('SET', rebuild, ARGV[1], 'PX', ARGV[2])
return 1
