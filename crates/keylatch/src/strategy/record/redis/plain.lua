-- Several of what `take.lua` and `leave.lua` do: first those who take, one after the other, then those who leave, all at
-- once: a process does not leave a name twice. KEYS: the heads. ARGV: how many take; for each of these how long it is kept (or nothing) and its bytes; for each who
-- leaves, how its head begins. Says the version of the first and the time: the others' follow. If it is not so for all
-- of them, a list of that, and for each of the others its place and what `take.lua` or `leave.lua` would say; or, where
-- that would fail, `!` and why: a Redis without memory takes nobody in, and lets go whoever wants to.
local call, pcall, find, sub, format = redis.call, redis.pcall, string.find, string.sub, string.format
local time = call('TIME')
local clock = ' ' .. time[1] .. ' ' .. time[2] .. ' '
local taken = tonumber(ARGV[1])
local version, refused = 0, nil
local others
local function other(place, answer)
  others = others or { '' }
  others[#others + 1] = place
  others[#others + 1] = answer
end
local function found(key, head)
  return { time[1], time[2], head, call('HGETALL', 'keylatch:wait:' .. sub(key, 15)) }
end

if taken > 0 then
  version = pcall('INCRBY', 'keylatch:counter', taken)
  if type(version) == 'number' and version < 1e15 then
    -- A counter that was lost must not give a number twice.
    local set = pcall('SET', 'keylatch:counter', format('%d', time[1] * 1e6 + time[2] + taken))
    version = set.err and set or time[1] * 1e6 + time[2] + taken
  end
  if type(version) == 'table' then
    version, refused = 0, '!' .. version.err
  else
    version = version - taken
  end
end
local first = version + 1
for place = 1, taken do
  if refused then
    other(place, refused)
  else
    version = version + 1
    local key, keep, head = KEYS[place], ARGV[2 * place], '-' .. format('%d', version) .. clock .. ARGV[2 * place + 1]
    local set
    if keep == '' then set = pcall('SET', key, head, 'NX') else set = pcall('SET', key, head, 'NX', 'PX', keep) end
    if not set then
      other(place, found(key, call('GET', key)))
    elseif set.err then
      other(place, '!' .. set.err)
    end
  end
end
if #KEYS > taken then
  local heads, gone = call('MGET', unpack(KEYS, taken + 1)), {}
  for at = 1, #heads do
    local key, head, start = KEYS[taken + at], heads[at], ARGV[2 * taken + at + 1]
    if head and (find(head, start, 1, true) == 1
        -- Somebody may have waited, and does not any more.
        or find(head, 'w' .. sub(start, 2), 1, true) == 1
          and call('EXISTS', 'keylatch:wait:' .. sub(key, 15)) == 0) then
      gone[#gone + 1] = key
    else
      other(taken + at, found(key, head))
    end
  end
  if #gone > 0 then call('DEL', unpack(gone)) end
end
local all = format('%d', first) .. clock
if others then
  others[1] = all
  return others
end
return all
