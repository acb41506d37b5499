-- Looks at partitions and changes nothing.
-- KEYS     due, held, mark of each partition
-- ARGV[1]  now (a score), ARGV[2] how many of the earliest due, ARGV[3] how many of the newest due that are not leased
-- returns  the server's run id, then for each partition: mark, the head's score, number of members, earliest, newest; these
--          two are lists of member, score
-- bound    32 of each a partition
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local reply = { string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '' }
local now, most = ARGV[1], tonumber(ARGV[3])
for p = 1, #KEYS / 3 do
  local due, held, mark = KEYS[p * 3 - 2], KEYS[p * 3 - 1], KEYS[p * 3]
  local earliest, newest = {}, {}
  -- A key that holds something else is seen before a claim.
  redis.call('HLEN', held)
  if tonumber(ARGV[2]) > 0 then
    earliest = redis.call('ZRANGEBYSCORE', due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
  end
  if most > 0 then
    local found = redis.call('ZREVRANGEBYSCORE', due, now, '-inf', 'WITHSCORES', 'LIMIT', 0, most * 2 + 8)
    for i = 1, #found, 2 do
      local entry = redis.call('HGET', held, string.sub(found[i], 1, 8))
      if #newest / 2 < most and not (entry and string.byte(entry, 13) == 1) then
        newest[#newest + 1] = found[i]
        newest[#newest + 1] = found[i + 1]
      end
    end
  end
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or ''
  reply[p + 1] = { redis.call('GET', mark) or '', head, redis.call('ZCARD', due), earliest, newest }
end
return reply
