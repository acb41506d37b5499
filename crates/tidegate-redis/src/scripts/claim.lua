-- Leases what is due: the earliest, and a share of the newest, so that a pile does not hold up the rest.
-- KEYS     due, held, mark of each partition
-- ARGV[1]  now, ARGV[2] when the lease ends (scores), ARGV[3] the claiming node
-- ARGV[4..] most of the earliest, most of the newest, for each partition
-- returns  the server's run id, then for each partition: mark, the head's score, earliest, newest; these two are lists of
--          member, tries, receipt, and the score it had
-- bound    512 claims, and as many again that were passed over
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local time = redis.call('TIME')
local stamp = time[1] * 1000000 + time[2]
local now, till, node = ARGV[1], ARGV[2], ARGV[3]
local reply = { string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '' }

-- A key that holds something else ends the call here, before any lease that nobody would know of.
for p = 1, #KEYS / 3 do
  local due, held, mark = KEYS[p * 3 - 2], KEYS[p * 3 - 1], KEYS[p * 3]
  redis.call('ZCARD', due)
  redis.call('HLEN', held)
  redis.call('STRLEN', mark)
end

for p = 1, #KEYS / 3 do
  local due, held, mark = KEYS[p * 3 - 2], KEYS[p * 3 - 1], KEYS[p * 3]
  local last = nil
  local function take(member, score, list)
    local order, instant = string.sub(member, 1, 8), string.sub(member, 9, 16)
    local entry = redis.call('HGET', held, order)
    local tries, again = 0, ''
    if entry then
      local _, before, leased = struct.unpack('>I8I4B', entry)
      again = string.sub(entry, 30, 37)
      if leased == 1 and string.sub(entry, 22, 29) ~= instant then
        -- One lease an order: this deadline waits inside the other's.
        if again == '' or instant < again then
          redis.call('HSET', held, order, string.sub(entry, 1, 29) .. instant)
        end
        redis.call('ZREM', due, member)
        return
      end
      tries = before
    end
    if not last then
      last = math.max(tonumber(redis.call('HGET', held, 'r') or 0), stamp - 1)
    end
    last = last + 1
    redis.call('HSET', held, order, struct.pack('>I8I4B', last, tries + 1, 1) .. node .. instant .. again)
    redis.call('ZADD', due, till, member)
    local n = #list
    list[n + 1], list[n + 2], list[n + 3], list[n + 4] = member, tries + 1, string.format('%.0f', last), score
  end

  local earliest, newest = {}, {}
  local most = tonumber(ARGV[2 + p * 2])
  local rounds = 0
  local more = most > 0
  while more and rounds < 4 do
    local found = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, most - #earliest / 4)
    for i = 1, #found, 2 do
      take(found[i], found[i + 1], earliest)
    end
    more = #found > 0 and #earliest / 4 < most
    rounds = rounds + 1
  end
  most = tonumber(ARGV[3 + p * 2])
  if most > 0 then
    local found = redis.call('ZREVRANGEBYSCORE', due, now, '-inf', 'WITHSCORES', 'LIMIT', 0, most * 2 + 8)
    for i = 1, #found, 2 do
      local entry = redis.call('HGET', held, string.sub(found[i], 1, 8))
      if #newest / 4 < most and not (entry and string.byte(entry, 13) == 1) then
        take(found[i], found[i + 1], newest)
      end
    end
  end
  if last then
    redis.call('HSET', held, 'r', string.format('%.0f', last))
  end
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
  reply[p + 1] = { redis.call('GET', mark) or '', head, earliest, newest }
end
return reply
