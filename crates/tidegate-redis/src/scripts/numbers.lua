-- Partitions in numbers; changes nothing.
-- KEYS     due, held, mark of each partition
-- ARGV[1]  now (a score), ARGV[2] where to go on in held
-- returns  the server's run id, then for each partition: mark, members, those whose instant has come, the head's score or '',
--          leases in this page of held that have not ended, where the next page begins ('0': nowhere)
-- bound    about 512 entries of held a partition
-- An entry of held: receipt (8 bytes, big-endian), tries (4), leased (1), node (8), instant (8), another instant that was
--          scheduled during the lease (8, or none)
local reply = { string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or '' }
local now = tonumber(ARGV[1])
for p = 1, #KEYS / 3 do
  local due, held, mark = KEYS[p * 3 - 2], KEYS[p * 3 - 1], KEYS[p * 3]
  local page = redis.call('HSCAN', held, ARGV[2], 'COUNT', 512)
  local leased = 0
  for i = 1, #page[2], 2 do
    local order, entry = page[2][i], page[2][i + 1]
    if #entry >= 29 and string.byte(entry, 13) == 1 then
      local ends = redis.call('ZSCORE', due, order .. string.sub(entry, 22, 29))
      if ends and tonumber(ends) > now then
        leased = leased + 1
      end
    end
  end
  reply[p + 1] = {
    redis.call('GET', mark) or '',
    redis.call('ZCARD', due),
    redis.call('ZCOUNT', due, '-inf', ARGV[1]),
    redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2] or '',
    leased,
    page[1],
  }
end
return reply
