-- Gives a dead task a new life.
-- KEYS     waiting, dead, tasks, mark
-- ARGV[1]  channel, ARGV[2] this process: told, ARGV[3] id, ARGV[4] delay (ms), ARGV[5] the latest instant
-- returns  '' if no dead task has the id, else its instant and its payload
-- bound    1 task
local waiting, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if redis.call('ZREM', dead, ARGV[3]) == 0 then
  return ''
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local due = math.min(now + tonumber(ARGV[4]), tonumber(ARGV[5]))
local entry, payload = redis.call('HGET', tasks, ARGV[3]), ''
if entry then
  local _, _, _, length = struct.unpack('>i8I8I2I2', entry)
  payload = string.sub(entry, 21 + length)
end
redis.call('ZADD', waiting, string.format('%.0f', due), ARGV[3])
redis.call('HSET', tasks, ARGV[3], struct.pack('>i8I8I2I2', due, 0, 0, 0) .. payload)
redis.call('PUBLISH', ARGV[1], ARGV[2])
return { string.format('%.0f', due), payload }
