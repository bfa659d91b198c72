-- One change of some names, all or nothing.
--
-- keylatch:lock:NAME is a head: `-`, or `w` if somebody may wait; then its version, the second and the
-- microsecond of its write, and its bytes, with a blank between. Version 0: there is none, but a queue.
-- keylatch:wait:NAME is a queue: the field `q` has how many they are and the largest seq, and a field
-- `w:ID` for each has its seq, second, microsecond, until when it lives, and its bytes. It is there only
-- while somebody waits. Both end by themselves, the head after the queue.
--
-- KEYS: the heads. ARGV: the channel, how many numbers the heads take, how many appends; for each name: the
-- version that is expected (`a`: nothing, `t`: any), the last seq that may be there (or -1), what to do
-- with the head (`k`eep, `p`ut, `d`elete), how long to keep it (or nothing), whether to tell, up to which seq
-- nobody else need be told, its bytes, how many to remove and their ids and seqs; for each append: id, how long it lives, bytes, how many names and
-- their numbers.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local names, at, fits, dirty = {}, 4, true, false

-- Not all at once: there is a limit to the arguments of a call.
local function in_parts(list, what)
  for from = 1, #list, 1000 do what(from, math.min(from + 999, #list)) end
end

for number, key in ipairs(KEYS) do
  local one = { key = key, wait = 'keylatch:wait:' .. string.sub(key, 15), expect = ARGV[at],
    seen = tonumber(ARGV[at + 1]), write = ARGV[at + 2], keep = ARGV[at + 3], tell = ARGV[at + 4] == '1',
    own = tonumber(ARGV[at + 5]), bytes = ARGV[at + 6], version = '0', count = 0, last = 0, removed = {},
    gone = {}, ask = { 'q' } }
  names[number] = one
  local removes = tonumber(ARGV[at + 7])
  at = at + 8
  for place = 1, removes do
    local field, seq = 'w:' .. ARGV[at], ARGV[at + 1]
    at = at + 2
    one.removed[place], one.gone[place], one.ask[place + 1] = seq, field, field
    one.gone[field] = true
  end
end
local appends = {}
for number = 1, tonumber(ARGV[3]) do
  local append = { field = 'w:' .. ARGV[at], live = ARGV[at + 1], bytes = ARGV[at + 2], to = {} }
  for step = 1, tonumber(ARGV[at + 3]) do
    local one = names[tonumber(ARGV[at + 3 + step])]
    append.to[step] = one
    if not one.gone[append.field] then one.ask[#one.ask + 1] = append.field end
  end
  at = at + 4 + #append.to
  appends[number] = append
end

for _, one in ipairs(names) do
  local head, found = call('GET', one.key), {}
  if head then
    one.version = string.match(head, '^.(%d+)')
    one.waits = string.byte(head) == 119
    if one.waits then
      in_parts(one.ask, function(from, to)
        local some = call('HMGET', one.wait, unpack(one.ask, from, to))
        for place = from, to do found[place] = some[place - from + 1] end
      end)
    end
    if found[1] then
      local count, last = string.match(found[1], '^(%d+) (%d+)$')
      one.count, one.last = tonumber(count), tonumber(last)
    end
  end
  one.before = one.last
  if one.expect == 'a' then
    fits = fits and one.version == '0' and one.count == 0
  elseif one.expect == 't' then
    fits = fits and one.version ~= '0'
  else
    fits = fits and one.version == one.expect
  end
  fits = fits and (one.seen < 0 or one.last <= one.seen)
  for place, seq in ipairs(one.removed) do
    local waiter = found[place + 1]
    fits = fits and waiter and string.find(waiter, seq .. ' ', 1, true) == 1
    if tonumber(seq) == one.last then one.last_gone = true end
  end
  -- Nobody stands there twice.
  for place = #one.removed + 2, #one.ask do fits = fits and not found[place] end
end
if not fits then
  local found = { time[1], time[2] }
  for _, one in ipairs(names) do
    found[#found + 1] = call('GET', one.key)
    found[#found + 1] = call('HGETALL', one.wait)
  end
  return found
end

-- What frees or prolongs something comes first: a Redis whose memory is full lets a script pass once it has
-- written something that needs none.
for _, one in ipairs(names) do
  in_parts(one.gone, function(from, to)
    call('HDEL', one.wait, unpack(one.gone, from, to))
    dirty = true
  end)
  if not dirty and one.write ~= 'k' and one.version ~= '0' then
    call('PERSIST', one.key)
    dirty = true
  end
  one.count = one.count - #one.gone
end
local numbers = tonumber(ARGV[2])
local all = numbers + #appends
local version = call('INCRBY', 'keylatch:counter', all) - all + 1
if version < 1e15 then
  version = time[1] * 1e6 + time[2]
  call('SET', 'keylatch:counter', string.format('%d', version + all))
end
local at_time = ' ' .. time[1] .. ' ' .. time[2] .. ' '
local stamp = string.format('%d', version) .. at_time
for number, append in ipairs(appends) do
  local seq, alive = version + numbers + number - 1, now + append.live
  local waiter = string.format('%d', seq) .. at_time .. string.format('%d ', alive) .. append.bytes
  for _, one in ipairs(append.to) do
    local fields = one.fields or {}
    fields[#fields + 1] = append.field
    fields[#fields + 1] = waiter
    one.count, one.last, one.fields = one.count + 1, seq, fields
    one.alive = math.max(one.alive or 0, alive)
  end
end

local found, news = {}, {}
for number, one in ipairs(names) do
  -- The queue.
  if one.count == 0 then
    if one.before > 0 then call('DEL', one.wait) end
  elseif one.fields or #one.gone > 0 then
    if one.last_gone and not one.fields then
      local fields = call('HGETALL', one.wait)
      one.last = 0
      for field = 1, #fields, 2 do
        if fields[field] ~= 'q' then
          one.last = math.max(one.last, tonumber(string.match(fields[field + 1], '^%d+')))
        end
      end
    end
    local fields = one.fields or {}
    fields[#fields + 1] = 'q'
    fields[#fields + 1] = string.format('%d %d', one.count, one.last)
    in_parts(fields, function(from, to) call('HSET', one.wait, unpack(fields, from, to)) end)
    if one.fields then
      local ends = string.format('%d', one.alive + 1000)
      -- One that was there has an end already, perhaps a later one.
      if one.before > 0 then
        call('PEXPIREAT', one.wait, ends, 'GT')
      else
        call('PEXPIREAT', one.wait, ends)
      end
    end
  end
  -- The head.
  local flag = one.count > 0 and 'w' or '-'
  local ends = one.count > 0 and (one.write ~= 'k' or one.version == '0')
    and call('PEXPIRETIME', one.wait) + 1000 or 0
  if one.write == 'p' then
    local head = flag .. stamp .. one.bytes
    if one.keep == '' then
      call('SET', one.key, head)
    else
      call('SET', one.key, head, 'PXAT', string.format('%d', math.max(ends, now + one.keep)))
    end
  elseif one.count == 0 then
    if one.write == 'd' or one.version == '0' then call('DEL', one.key) end
  elseif one.write == 'd' or one.version == '0' then
    call('SET', one.key, 'w0' .. at_time, 'PXAT', string.format('%d', ends))
  elseif one.fields then
    if not one.waits then call('SETRANGE', one.key, 0, 'w') end
    call('PEXPIREAT', one.key, string.format('%d', one.alive + 2000), 'GT')
  end
  -- What those who wait have to know.
  if one.tell or (one.before > one.own and (one.write ~= 'k' or #one.removed > 0)) then
    local name = string.sub(one.key, 15)
    news[#news + 1] = #name .. ' ' .. name .. string.format('%d', version) .. ' ' .. #one.removed .. ' '
    for _, seq in ipairs(one.removed) do news[#news + 1] = seq .. ' ' end
  end
  found[number] = ' ' .. one.version .. string.format(' %d', one.before)
end
if #news > 0 then call('PUBLISH', ARGV[1], table.concat(news)) end
return string.format('%d', version) .. ' ' .. time[1] .. ' ' .. time[2] .. table.concat(found)
