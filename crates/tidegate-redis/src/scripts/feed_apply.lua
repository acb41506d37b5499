-- Applies changes to copies of one partition, and tells the news of each.
-- KEYS[1]  news; then of each change the copy and, of an author, his head (else the copy again)
-- ARGV[1]  about how many news are kept, ARGV[2] how long idle ones are, ARGV[3] life of a floor, ARGV[4] of a set,
-- ARGV[5]  of ties and reposts (ms), ARGV[6] the instant at which sets begin, ARGV[7] to how many posts a set is cut,
-- ARGV[8]  most reposts of a root
-- ARGV[9..] of each change its kind, the version before, the version, the news, and
--          P: how many posts are added and removed; of each added its instant, its place, its member; of each removed its
--          instant and its place. T: what is appended to ties. R: how many reposts are set and unset; of each set its user
--          and itself; of each unset its user. a, u, r: nothing, it is a floor of an author, a user, a root
-- returns  the id of the last news
-- bound    the arguments, and what leaves the sets
local news = KEYS[1]
local low, most, most_reposts = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local function text(number)
  return string.format('%.0f', number)
end

-- What a change makes of a copy that is known ('K') or a floor ('F') of a version.
local function fate(kind, has, prev, version)
  if has and has >= version then
    return 'stays'
  elseif kind == 'K' then
    return has == prev and 'patched' or 'floor'
  end
  return prev == 0 and 'new' or 'floor'
end

local function set_floor(k, version)
  redis.call('UNLINK', KEYS[k], KEYS[k + 1])
  redis.call('ZADD', KEYS[k], 0, '\0F' .. version)
  redis.call('PEXPIRE', KEYS[k], ARGV[3])
end

-- Forgets the posts before an instant. They are ordered by eight bytes of it.
local function begin_at(k, at)
  local high = math.floor(at / 4294967296)
  local bytes = struct.pack('>I4I4', high + 2147483648, at - high * 4294967296)
  redis.call('ZREMRANGEBYLEX', KEYS[k], '[\1', '(' .. bytes)
end

local function instant(member)
  local high, rest = struct.unpack('>I4I4', member)
  return (high - 2147483648) * 4294967296 + rest
end

local function posts(k, at, is_floor, prev, version)
  local marker = redis.call('ZRANGE', KEYS[k], 0, 0)[1] or ''
  local kind, has, from, oldest = string.match(marker, '^%z([KF])(%d+) ?(%-?%d*) ?(%-?%d*)')
  local what = fate(kind, tonumber(has), tonumber(prev), tonumber(version))
  local added, removed = 0, 0
  if not is_floor then
    added, removed = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    at = at + 2
  end
  local after = at + 3 * added + 2 * removed
  if what == 'stays' then
    return after
  elseif is_floor or what == 'floor' then
    set_floor(k, version)
    return after
  elseif what == 'new' then
    redis.call('UNLINK', KEYS[k], KEYS[k + 1])
    from, oldest = low, nil
  else
    redis.call('ZREM', KEYS[k], marker)
    from, oldest = tonumber(from), tonumber(oldest)
  end
  for i = 1, added do
    local when = tonumber(ARGV[at])
    if not oldest or when < oldest then
      oldest = when
    end
    if when >= from then
      redis.call('ZREMRANGEBYLEX', KEYS[k], '[' .. ARGV[at + 1], '(' .. ARGV[at + 1] .. '\1')
      redis.call('ZADD', KEYS[k], 0, ARGV[at + 2])
    end
    at = at + 3
  end
  for i = 1, removed do
    -- Which is the oldest now, only the ledger knows.
    if tonumber(ARGV[at]) == oldest then
      set_floor(k, version)
      return after
    end
    redis.call('ZREMRANGEBYLEX', KEYS[k], '[' .. ARGV[at + 1], '(' .. ARGV[at + 1] .. '\1')
    at = at + 2
  end
  if from < low then
    begin_at(k, low)
    from = low
  end
  if redis.call('ZCARD', KEYS[k]) > 2 * most then
    local goes = instant(redis.call('ZRANGE', KEYS[k], -most - 1, -most - 1)[1])
    if goes + 1 > from then
      from = goes + 1
      begin_at(k, from)
    end
  end
  local newest = redis.call('ZRANGE', KEYS[k], -1, -1)[1]
  marker = 'K' .. version .. ' ' .. text(from) .. ' ' .. (oldest and text(oldest) or '') .. ' '
    .. (newest and text(instant(newest)) or '')
  redis.call('ZADD', KEYS[k], 0, '\0' .. marker)
  redis.call('PEXPIRE', KEYS[k], ARGV[4])
  redis.call('SET', KEYS[k + 1], marker, 'PX', ARGV[4])
  return after
end

local function ties(k, at, is_floor, prev, version)
  local header = redis.call('GETRANGE', KEYS[k], 0, 26)
  local what = fate(string.sub(header, 1, 1), tonumber(string.sub(header, 2, 17)), tonumber(prev), tonumber(version))
  local appended = not is_floor and ARGV[at] or ''
  local after = is_floor and at or at + 1
  local digits = string.format('%016.0f', tonumber(version))
  if what == 'patched' and not is_floor then
    if redis.call('STRLEN', KEYS[k]) + #appended <= tonumber(string.sub(header, 18)) then
      redis.call('SETRANGE', KEYS[k], 1, digits)
      redis.call('APPEND', KEYS[k], appended)
      redis.call('PEXPIRE', KEYS[k], ARGV[5])
      return after
    end
    -- Many changes of few names: read anew, it is short again.
    what = 'floor'
  end
  if what == 'new' and not is_floor then
    local limit = string.format('%010.0f', 4096 + 2 * #appended)
    redis.call('SET', KEYS[k], 'K' .. digits .. limit .. appended, 'PX', ARGV[5])
  elseif what ~= 'stays' then
    redis.call('SET', KEYS[k], 'F' .. digits, 'PX', ARGV[3])
  end
  return after
end

local function root_floor(k, version)
  redis.call('UNLINK', KEYS[k])
  redis.call('HSET', KEYS[k], '', 'F' .. version)
  redis.call('PEXPIRE', KEYS[k], ARGV[3])
end

local function reposts(k, at, is_floor, prev, version)
  local kind, has = string.match(redis.call('HGET', KEYS[k], '') or '', '^([KF])(%d+)')
  local what = fate(kind, tonumber(has), tonumber(prev), tonumber(version))
  local set, unset = 0, 0
  if not is_floor then
    set, unset = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    at = at + 2
  end
  local after = at + 2 * set + unset
  if what == 'stays' then
    return after
  elseif is_floor or what == 'floor' then
    root_floor(k, version)
    return after
  elseif what == 'new' then
    redis.call('UNLINK', KEYS[k])
  end
  for i = 1, set do
    redis.call('HSET', KEYS[k], ARGV[at], ARGV[at + 1])
    at = at + 2
  end
  for i = 1, unset do
    redis.call('HDEL', KEYS[k], ARGV[at])
    at = at + 1
  end
  redis.call('HSET', KEYS[k], '', 'K' .. version)
  redis.call('PEXPIRE', KEYS[k], ARGV[5])
  if redis.call('HLEN', KEYS[k]) - 1 > most_reposts then
    root_floor(k, version)
  end
  return after
end

-- A server whose memory is full refuses to add, unless a script has written already: that something is old must not be refused.
redis.call('PEXPIRE', news, ARGV[2])
local at, k, id = 9, 2, ''
while at <= #ARGV do
  local kind, prev, version, told = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  at = at + 4
  if kind == 'P' or kind == 'a' then
    at = posts(k, at, kind == 'a', prev, version)
  elseif kind == 'T' or kind == 'u' then
    at = ties(k, at, kind == 'u', prev, version)
  else
    at = reposts(k, at, kind == 'r', prev, version)
  end
  k = k + 2
  id = redis.call('XADD', news, 'MAXLEN', '~', ARGV[1], '*', 'e', told)
end
redis.call('PEXPIRE', news, ARGV[2])
return id
