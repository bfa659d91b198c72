-- Waiters live. KEYS: the heads of their names. ARGV: for how long; for each waiter its id, its seq and how
-- many of the names are its own. A `1` for each, or a `0` for one that is not there or was dead.
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local alive = now + ARGV[1]
local answers, before, at = {}, 0, 2
while at <= #ARGV do
  local field, seq, names = 'w:' .. ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local waiters, lives = {}, '1'
  for number = 1, names do
    local wait = 'keylatch:wait:' .. string.sub(KEYS[before + number], 15)
    local waiter = call('HGET', wait, field)
    local its, stamp, ends, rest
    if waiter then its, stamp, ends, rest = string.match(waiter, '^(%d+)( %d+ %d+ )(%d+)()') end
    if its ~= seq or tonumber(ends) <= now then lives = '0' break end
    ends = math.max(tonumber(ends), alive)
    waiters[number] = seq .. stamp .. string.format('%d', ends) .. string.sub(waiter, rest)
  end
  if lives == '1' then
    for number, waiter in ipairs(waiters) do
      local key = KEYS[before + number]
      local wait = 'keylatch:wait:' .. string.sub(key, 15)
      call('HSET', wait, field, waiter)
      call('PEXPIREAT', wait, string.format('%d', alive + 1000), 'GT')
      call('PEXPIREAT', key, string.format('%d', alive + 2000), 'GT')
    end
  end
  answers[#answers + 1] = lives
  before, at = before + names, at + 3
end
return table.concat(answers)
