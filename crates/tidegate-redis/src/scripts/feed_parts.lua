-- Parts of authors' sets, each as it is at one moment.
-- KEYS[1..] sets
-- ARGV[1..] of each: N (newest first) or O, the edge as ZRANGE takes it, how many members
-- returns  of each its marker, or '', and a list of members
-- bound    as many members as are asked for
local found = {}
for k = 1, #KEYS do
  local order, edge, most = ARGV[3 * k - 2], ARGV[3 * k - 1], ARGV[3 * k]
  local marker = redis.call('ZRANGE', KEYS[k], 0, 0)[1] or ''
  found[2 * k - 1] = marker
  if string.sub(marker, 1, 2) ~= '\0K' then
    found[2 * k] = {}
  elseif order == 'N' then
    found[2 * k] = redis.call('ZRANGE', KEYS[k], edge, '[\1', 'BYLEX', 'REV', 'LIMIT', 0, most)
  else
    found[2 * k] = redis.call('ZRANGE', KEYS[k], edge, '+', 'BYLEX', 'LIMIT', 0, most)
  end
end
return found
