-- Does what the holders of tasks say.
-- KEYS     waiting, leased, dead, tasks, mark
-- ARGV[1]  channel, ARGV[2] this process: told when the head moved forward, ARGV[3] attempts a task has, ARGV[4] the latest
--          instant
-- ARGV[5..] id, receipt, verdict ('a'ck, 'r'elease, 'e'xtend, re't'ry), milliseconds ('~' before a spread), error of each
-- returns  time (microseconds), whether the head moved forward, then 'H' (done), 'L' (lost) or 'X' (dead) for each
-- bound    128 tasks
local waiting, leased, dead, tasks, mark = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now = math.floor(stamp / 1000)
local seen = tonumber(redis.call('HGET', mark, 't') or 0)
if now < seen and seen - now <= 5000 then
  now = seen
end
local max_attempts, latest = tonumber(ARGV[3]), tonumber(ARGV[4])
redis.call('ZCARD', dead)
local head, first = tonumber(redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')[2] or ''), nil
local reply = { string.format('%.0f', stamp), 0 }
-- As they are before the first of these is settled; of one that is named again, what is left of it.
local ids, entries, at = {}, {}, 0
for i = 5, #ARGV, 5 do
  at = at + 1
  ids[at] = ARGV[i]
end
if at > 0 then
  local found = redis.call('HMGET', tasks, unpack(ids))
  for i = 1, at do
    entries[ids[i]] = found[i]
  end
end
local gone, extended = {}, {}
for i = 5, #ARGV, 5 do
  local id, verdict, ms, message = ARGV[i], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]
  local entry = entries[id]
  local outcome = 'L'
  if entry then
    local due, receipt, attempt, length = struct.unpack('>i8I8I2I2', entry)
    if receipt ~= 0 and string.format('%.0f', receipt) == ARGV[i + 1] then
      outcome = 'H'
      if verdict == 'a' then
        gone[#gone + 1] = id
        entries[id] = nil
      elseif verdict == 'e' then
        extended[#extended + 1] = string.format('%.0f', now + tonumber(ms))
        extended[#extended + 1] = id
      else
        local rest, new = string.sub(entry, 21), nil
        redis.call('ZREM', leased, id)
        if verdict == 'r' then
          redis.call('ZADD', waiting, string.format('%.0f', due), id)
          new = struct.pack('>i8I8I2I2', due, 0, attempt - 1, length) .. rest
          first = math.min(first or due, due)
        else
          if attempt >= max_attempts then
            outcome = 'X'
            redis.call('ZADD', dead, string.format('%.0f', now), id)
          else
            local delay
            if string.sub(ms, 1, 1) == '~' then
              -- A second, doubling to an hour; the spread is in thousandths.
              delay = math.min(1000 * 2 ^ math.min(attempt - 1, 12), 3600000)
              delay = math.floor(delay * (800 + tonumber(string.sub(ms, 2))) / 1000)
            else
              delay = tonumber(ms)
            end
            local again = math.min(now + delay, latest)
            redis.call('ZADD', waiting, string.format('%.0f', again), id)
            first = math.min(first or again, again)
          end
          new = struct.pack('>i8I8I2I2', due, 0, attempt, #message) .. message .. string.sub(rest, length + 1)
        end
        redis.call('HSET', tasks, id, new)
        entries[id] = new
      end
    end
  end
  reply[#reply + 1] = outcome
end
if #gone > 0 then
  redis.call('ZREM', leased, unpack(gone))
  redis.call('HDEL', tasks, unpack(gone))
end
-- After what takes no memory: a full server then lets it pass. Those that are leased no more are left alone.
if #extended > 0 then
  redis.call('ZADD', leased, 'XX', unpack(extended))
end
if first and (not head or first < head) then
  reply[2] = 1
  redis.call('PUBLISH', ARGV[1], ARGV[2])
end
return reply
