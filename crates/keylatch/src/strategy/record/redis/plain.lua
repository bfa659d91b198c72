-- Several of what `take.lua` and `leave.lua` do, one after the other. KEYS: the heads. ARGV, for each: 'l' and how it
-- begins, for one that goes; else how long it is kept (or nothing) and its bytes. Says what those would; where one of
-- them would fail, `!` and why: a Redis without memory takes nobody in, and lets go whoever wants to.
local call, find, sub = redis.call, string.find, string.sub
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then return nil, '!' .. reply.err end
  return reply
end

local time = call('TIME')
local clock = time[1] .. ' ' .. time[2] .. ' '
local taken = 0
for i = 1, #ARGV, 2 do
  if ARGV[i] ~= 'l' then taken = taken + 1 end
end
local version, refused
if taken > 0 then
  version, refused = try('INCRBY', 'keylatch:counter', taken)
  if version and version < 1e15 then
    -- A counter that was lost must not give a number twice.
    version = time[1] * 1e6 + time[2] + taken
    refused = select(2, try('SET', 'keylatch:counter', string.format('%d', version)))
  end
  version = (version or 0) - taken
end
local answers = {}
for i, key in ipairs(KEYS) do
  local how, what = ARGV[2 * i - 1], ARGV[2 * i]
  local answer, head
  if how == 'l' then
    head = call('GET', key)
    if head and (find(head, what, 1, true) == 1
        -- Somebody may have waited, and does not any more.
        or find(head, 'w' .. sub(what, 2), 1, true) == 1
          and call('EXISTS', 'keylatch:wait:' .. sub(key, 15)) == 0) then
      answer = call('DEL', key)
    end
  elseif refused then
    answer = refused
  else
    version = version + 1
    local stamp = string.format('%d ', version) .. clock
    local set, why
    if how == '' then
      set, why = try('SET', key, '-' .. stamp .. what, 'NX')
    else
      set, why = try('SET', key, '-' .. stamp .. what, 'NX', 'PX', how)
    end
    if set then answer = stamp elseif why then answer = why else head = call('GET', key) end
  end
  answers[i] = answer
      or { time[1], time[2], head, call('HGETALL', 'keylatch:wait:' .. sub(key, 15)) }
end
return answers
