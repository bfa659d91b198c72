-- The head of a name that nobody is on: all that an uncontended lock is. What `commit.lua` does too, with as
-- little as can be: a call from here costs as much as a command, and an argument or a table that is
-- returned almost as much. KEYS: the head. ARGV: how long it is kept (or nothing), its bytes.
local call = redis.call
local time = call('TIME')
local version = call('INCR', 'keylatch:counter')
if version < 1e15 then
  -- A counter that was lost must not give a number twice.
  version = time[1] * 1e6 + time[2]
  call('SET', 'keylatch:counter', string.format('%d', version))
end
local stamp = string.format('%d ', version) .. time[1] .. ' ' .. time[2] .. ' '
local taken
if ARGV[1] == '' then
  taken = call('SET', KEYS[1], '-' .. stamp .. ARGV[2], 'NX')
else
  taken = call('SET', KEYS[1], '-' .. stamp .. ARGV[2], 'NX', 'PX', ARGV[1])
end
if taken then return stamp end
local head = call('GET', KEYS[1])
return { time[1], time[2], head, call('HGETALL', 'keylatch:wait:' .. string.sub(KEYS[1], 15)) }
