-- A lock as it stands.
-- KEYS     holder, line
-- ARGV     none
-- returns  fence or '', what is left (ms), how many wait
-- bound    1 lock
local holder, line = KEYS[1], KEYS[2]
return { redis.call('HGET', holder, 'f') or '', redis.call('PTTL', holder), redis.call('ZCARD', line) }
