-- Everything that is done to tasks. ARGV: what, the channel, the pool, and what it needs.
--
-- keylatch:task:LENGTH:POOL:KEY is a task, a hash: v and t the version and time of its last write, wv and wt of
-- the last that was not a take, n its number, s its state (0 free, 1 claimed, 2 done, 3 failed), p its priority,
-- r when it is due (nothing: never), d where it stands (1 in the line, 0 among those that are due later),
-- i the id of its claim, c its claim, b its bytes. For each pool there are ordered sets:
-- keylatch:tasks:line:POOL those that are due, by priority, time, number, which is how their members begin;
-- later: by the time when they are due; all, claimed, done, failed: by number.
-- keylatch:tasks:wait:POOL is there while somebody waits; keylatch:tasks:claim:ID says what a claim took.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local what, channel, pool = ARGV[1], ARGV[2], ARGV[3]
local FIELDS = { 'v', 't', 'wv', 'wt', 'n', 's', 'p', 'r', 'c', 'b' }
local STATES = { ['1'] = 'claimed', ['2'] = 'done', ['3'] = 'failed' }

local function whole(number) return string.format('%d', number) end
local function set(name) return 'keylatch:tasks:' .. name .. ':' .. pool end
local function name(key) return #pool .. ':' .. pool .. ':' .. key end
local function task(key) return 'keylatch:task:' .. name(key) end
local function read(key) return call('HMGET', task(key), unpack(FIELDS)) end

-- Its place in the line.
local function member(key, priority, ready, number)
  return string.format('%010d%016d%016d', 2147483647 - priority, ready, number) .. key
end

local function version()
  local version = call('INCR', 'keylatch:counter')
  if version < 1e15 then
    version = time[1] * 1e6 + time[2]
    call('SET', 'keylatch:counter', whole(version))
  end
  return whole(version)
end

-- It leaves where it stands. What frees memory comes first, so that a full Redis lets the rest pass.
local function leave(key)
  local was = call('HMGET', task(key), 'd', 's', 'p', 'r', 'n')
  call('PERSIST', task(key))
  if was[1] == '1' then
    call('ZREM', set('line'), member(key, was[3], was[4], was[5]))
  elseif was[1] == '0' then
    call('ZREM', set('later'), key)
  end
  if STATES[was[2]] then call('ZREM', set(STATES[was[2]]), key) end
end

-- Where it stands: its field d.
local function enter(key, state, priority, ready, number)
  if STATES[state] then call('ZADD', set(STATES[state]), number, key) end
  if ready == '' then return '' end
  if state == '0' and tonumber(ready) <= now then
    call('ZADD', set('line'), 0, member(key, priority, ready, number))
    return '1'
  end
  call('ZADD', set('later'), ready, key)
  return '0'
end

-- Those whose time has come go into the line, the earliest first: how many.
local function put_in_line(most)
  local due = call('ZRANGEBYSCORE', set('later'), '-inf', whole(now), 'LIMIT', 0, most)
  for _, key in ipairs(due) do
    local was = call('HMGET', task(key), 's', 'p', 'r', 'n')
    call('ZREM', set('later'), key)
    -- Its lease ran out; it is no write.
    if was[1] == '1' then call('ZREM', set('claimed'), key) end
    call('ZADD', set('line'), 0, member(key, was[2], was[3], was[4]))
    call('HSET', task(key), 'd', '1')
  end
  return #due
end

-- If somebody waits there. `due` in how long, or nothing.
local function tell(key, due)
  if call('EXISTS', set('wait')) == 1 then
    call('PUBLISH', channel, #pool .. ' ' .. pool .. #key .. ' ' .. key .. due)
  end
end

if what == 'take' then
  local wanted, id, claim, lease = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
  local claims = 'keylatch:tasks:claim:' .. id
  local before = call('GET', claims)
  if before and string.sub(before, 1, #name('')) == name('') then
    local key = string.sub(before, #name('') + 1)
    if call('HGET', task(key), 'i') == id then return { whole(now), '1', key, read(key) } end
  end
  local key
  if wanted ~= '' then
    wanted = string.sub(wanted, 2)
    local is = call('HMGET', task(wanted), 'd', 'r')
    if is[1] == '1' or (is[1] == '0' and tonumber(is[2]) <= now) then key = wanted end
  else
    put_in_line(tonumber(ARGV[9]))
    local first = call('ZRANGE', set('line'), 0, 0)[1]
    if first then key = string.sub(first, 43) end
  end
  if key then
    leave(key)
    local was = call('HMGET', task(key), 'p', 'n')
    local ready = lease > 0 and whole(now + lease) or ''
    local stands = enter(key, '1', was[1], ready, was[2])
    call('HSET', task(key), 'v', version(), 't', whole(now), 's', '1', 'r', ready, 'd', stands,
      'i', id, 'c', claim)
    call('SET', claims, name(key), 'PX', 60000)
    tell(key, lease > 0 and whole(lease) or '')
    return { whole(now), '1', key, read(key) }
  end
  if ARGV[8] == '1' then call('SET', set('wait'), '', 'PX', ARGV[10]) end
  if wanted ~= '' then return { whole(now), '0', '', read(wanted) } end
  local next = call('ZRANGE', set('later'), 0, 0, 'WITHSCORES')[2]
  return { whole(now), '0', next and whole(math.max(0, next - now)) or '', false }

elseif what == 'change' then
  local key, expect, write, state, priority, ready = unpack(ARGV, 4, 9)
  local was = call('HMGET', task(key), 'v', 'n')
  if (was[1] or '') ~= expect then return { whole(now), read(key) } end
  if expect ~= '' then leave(key) end
  local stamp = version()
  if write == 'd' then
    call('DEL', task(key))
    call('ZREM', set('all'), key)
    if call('EXISTS', set('all')) == 0 then call('SREM', 'keylatch:tasks:pools', pool) end
    return stamp .. ' ' .. whole(now)
  end
  local number = was[2] or stamp
  if expect == '' then
    call('ZADD', set('all'), number, key)
    call('SADD', 'keylatch:tasks:pools', pool)
  end
  -- So long after this write, or at a time.
  if string.sub(ready, 1, 1) == '+' then
    ready = whole(now + tonumber(string.sub(ready, 2)))
  end
  local stands = enter(key, state, priority, ready, number)
  call('HSET', task(key), 'v', stamp, 't', whole(now), 'wv', stamp, 'wt', whole(now), 'n', number,
    's', state, 'p', priority, 'r', ready, 'd', stands, 'b', ARGV[10], 'c', ARGV[11])
  tell(key, ready ~= '' and whole(math.max(0, tonumber(ready) - now)) or '')
  return stamp .. ' ' .. whole(now)

elseif what == 'task' then
  return { whole(now), read(ARGV[4]) }

elseif what == 'page' then
  local keys = call('ZRANGEBYSCORE', set(ARGV[4]), '(' .. ARGV[5], '+inf', 'LIMIT', 0, ARGV[6])
  local found = { whole(now) }
  for _, key in ipairs(keys) do
    found[#found + 1] = key
    found[#found + 1] = read(key)
  end
  return found

else
  local moved = put_in_line(tonumber(ARGV[4]))
  local function count(name) return call('ZCARD', set(name)) end
  return { moved, count('all'), count('line'), count('claimed'), count('done'), count('failed') }
end
