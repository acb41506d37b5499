-- When queues have something to hand out.
-- KEYS     waiting, leased, mark of each queue
-- ARGV     none
-- returns  time (microseconds), then number of the queue or '' and the head's score or '' of each
-- bound    256 queues
local time = redis.call('TIME')
local reply = { string.format('%.0f', time[1] * 1000000 + time[2]) }
for i = 1, #KEYS, 3 do
  local head = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  local lease = redis.call('ZRANGE', KEYS[i + 1], 0, 0, 'WITHSCORES')[2]
  if head and lease and tonumber(lease) < tonumber(head) then
    head = lease
  end
  reply[#reply + 1] = redis.call('HGET', KEYS[i + 2], 'i') or ''
  reply[#reply + 1] = head or lease or ''
end
return reply
