-- A head goes that nobody waits at: all that an uncontended release is, in four calls. KEYS: the head. ARGV:
-- how many numbers, its version.
local call = redis.call
local head = call('GET', KEYS[1])
local time = call('TIME')
local wait = 'keylatch:wait:' .. string.sub(KEYS[1], 15)
if not head or string.match(head, '^.(%d+)') ~= ARGV[2]
    or (string.byte(head) ~= 45 and call('EXISTS', wait) == 1) then
  return { time[1], time[2], head, call('HGETALL', wait) }
end
-- This first: a Redis whose memory is full lets it pass, and then all that follows.
call('DEL', KEYS[1])
local version = call('INCRBY', 'keylatch:counter', ARGV[1]) - ARGV[1] + 1
if version < 1e15 then
  version = time[1] * 1e6 + time[2]
  call('SET', 'keylatch:counter', string.format('%d', version + ARGV[1]))
end
return string.format('%d %s %s', version, time[1], time[2])
