-- One change of some names, all or nothing. KEYS: the counter, then a hash for each name. A hash has the
-- field h (head: version, time, bytes) and a field w:SEQ for each waiter (time, alive until, bytes).
-- ARGV: channel, how many numbers, whether to append, how long that lives, its bytes; then for each
-- name: expected version (or "absent", "there"), the last seq that may be there (or -1), "keep", "put" or
-- "delete", the bytes to put, how long to keep them (or -1), whether to append here, how many to remove, and
-- which.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function text(number) return string.format('%.0f', number) end

local at = 6
local changes = {}
local mismatch = false
for position = 2, #KEYS do
  local one = { key = KEYS[position], expect = ARGV[at], last = tonumber(ARGV[at + 1]), kind = ARGV[at + 2],
    bytes = ARGV[at + 3], keep = tonumber(ARGV[at + 4]), append = ARGV[at + 5] == '1', remove = {} }
  for number = 1, tonumber(ARGV[at + 6]) do one.remove[number] = ARGV[at + 6 + number] end
  at = at + 7 + #one.remove
  changes[#changes + 1] = one
  local head = redis.call('HGET', one.key, 'h')
  local last = 0
  one.waiters = 0
  one.alive = 0
  for _, field in ipairs(redis.call('HKEYS', one.key)) do
    if field ~= 'h' then
      one.waiters = one.waiters + 1
      last = math.max(last, tonumber(string.sub(field, 3)))
    end
  end
  if one.expect == 'absent' then
    if head or one.waiters > 0 then mismatch = true end
  elseif not head then
    mismatch = true
  elseif one.expect ~= 'there' and string.match(head, '^%d+') ~= one.expect then
    mismatch = true
  end
  if one.last >= 0 and last > one.last then mismatch = true end
  for _, seq in ipairs(one.remove) do
    if redis.call('HEXISTS', one.key, 'w:' .. seq) == 0 then mismatch = true end
  end
end
if mismatch then
  local found = { text(now) }
  for _, one in ipairs(changes) do found[#found + 1] = redis.call('HGETALL', one.key) end
  return found
end

-- A counter that was lost must not give a number twice.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('SET', KEYS[1], time[1] .. string.format('%06d', time[2]))
end
local append = ARGV[3] == '1'
local numbers = math.max(tonumber(ARGV[2]), 1) + (append and 1 or 0)
local counter = redis.call('INCRBY', KEYS[1], numbers)
local version = text(counter - numbers + 1)
for _, one in ipairs(changes) do
  if one.kind == 'put' then
    redis.call('HSET', one.key, 'h', version .. ' ' .. text(now) .. ' ' .. one.bytes)
  elseif one.kind == 'delete' then
    redis.call('HDEL', one.key, 'h')
  end
  for _, seq in ipairs(one.remove) do redis.call('HDEL', one.key, 'w:' .. seq) end
  local waiters = one.waiters - #one.remove
  if one.append then
    local alive = text(now + tonumber(ARGV[4]))
    redis.call('HSET', one.key, 'w:' .. text(counter), text(now) .. ' ' .. alive .. ' ' .. ARGV[5])
    waiters = waiters + 1
  end
  -- Nothing stays behind for ever; but never a queue that somebody stands in, nor a lock without a lease.
  if one.kind == 'put' then
    if one.keep < 0 or waiters > 0 then
      redis.call('PERSIST', one.key)
    else
      redis.call('PEXPIRE', one.key, one.keep)
    end
  elseif one.append then
    redis.call('PERSIST', one.key)
  end
end
redis.call('PUBLISH', ARGV[1], '')
return { 'done', version, text(counter) }
