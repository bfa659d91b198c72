-- A head goes that nobody waits at: all that an uncontended release is, and no more than any lock in Redis
-- needs for it. Nothing is written that a number or a time would be for. KEYS: the head. ARGV: how
-- it begins.
local call = redis.call
local head = call('GET', KEYS[1])
if head and string.find(head, ARGV[1], 1, true) == 1 then return call('DEL', KEYS[1]) end
local wait = 'keylatch:wait:' .. string.sub(KEYS[1], 15)
-- Somebody may have waited, and does not any more.
if head and string.find(head, 'w' .. string.sub(ARGV[1], 2), 1, true) == 1
    and call('EXISTS', wait) == 0 then
  return call('DEL', KEYS[1])
end
local time = call('TIME')
return { time[1], time[2], head, call('HGETALL', wait) }
