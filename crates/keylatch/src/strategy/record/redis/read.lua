-- KEYS: heads. They, their queues, and the time.
local time = redis.call('TIME')
local found = { time[1], time[2] }
for _, key in ipairs(KEYS) do
  local head = redis.call('GET', key)
  found[#found + 1] = head
  found[#found + 1] = head and string.byte(head) == 119
    and redis.call('HGETALL', 'keylatch:wait:' .. string.sub(key, 15)) or {}
end
return found
