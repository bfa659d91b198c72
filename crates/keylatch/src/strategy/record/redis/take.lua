-- The head of a name that nobody is on: all that an uncontended lock is. What `commit.lua` does too, in
-- three calls, for each call costs as much as a command. KEYS: the head. ARGV: how many numbers, how long
-- it is kept (or nothing), its bytes.
local call = redis.call
local time = call('TIME')
local version = call('INCRBY', 'keylatch:counter', ARGV[1]) - ARGV[1] + 1
if version < 1e15 then
  -- A counter that was lost must not give a number twice.
  version = time[1] * 1e6 + time[2]
  call('SET', 'keylatch:counter', string.format('%d', version + ARGV[1]))
end
local stamp = string.format('%d %s %s', version, time[1], time[2])
local head = '-' .. stamp .. ' ' .. ARGV[3]
local taken
if ARGV[2] == '' then
  taken = call('SET', KEYS[1], head, 'NX')
else
  taken = call('SET', KEYS[1], head, 'NX', 'PX', ARGV[2])
end
-- One string: a table costs more to return than it cost to write.
if taken then return stamp end
local there = call('GET', KEYS[1])
return { time[1], time[2], there, call('HGETALL', 'keylatch:wait:' .. string.sub(KEYS[1], 15)) }
