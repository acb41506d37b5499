-- Makes empty buckets.
-- KEYS[1]  count of additions, KEYS[2..] buckets
-- ARGV[1]  bytes of a bucket, ARGV[2] how long they are kept (ms)
-- returns  nothing
-- bound    256 buckets of 1 KiB
local count = KEYS[1]
redis.call('SET', count, '0', 'NX', 'PX', ARGV[2])
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('SETBIT', KEYS[i], tonumber(ARGV[1]) * 8 - 1, 0)
    redis.call('PEXPIRE', KEYS[i], ARGV[2])
  end
end
