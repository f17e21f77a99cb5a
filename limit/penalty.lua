-- Records that a rule with a penalty has refused a client, and starts a cool-down with the last refusal it tolerates.
-- It is called when charge.lua has refused a spend of such a rule; charge.lua itself reads whether a cool-down runs.
--
-- KEYS[1]   list: the instants (µs) of the refusals that may still lead to a cool-down
-- KEYS[2]   list: the ends (µs) of cool-downs; only the last one may lie ahead
-- ARGV      now in µs, 0 for the server's clock; how many refusals start a cool-down; the window in which refusals and
--           cool-downs count; the length of the first cool-down in that window, of the second, …; the last one repeats
-- Reply     now; µs until the end of the cool-down that runs or starts, 0 for none

local call, max, min = redis.call, math.max, math.min
local now, threshold, window, lengths = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), #ARGV - 3
local clock = call('TIME')
if now == 0 then now = clock[1] * 1000000 + clock[2] end

local function last(key) return tonumber(call('LINDEX', key, -1)) or 0 end
local function drop(key, edge)
  while (tonumber(call('LINDEX', key, 0)) or edge + 1) <= edge do call('LPOP', key) end
end
local function expire(key, instant) call('PEXPIREAT', key, math.ceil(instant / 1000)) end

-- An end further ahead than a cool-down can be was written before the clock was set back, or by a harder penalty.
local longest = 0
for i = 4, #ARGV do longest = max(longest, tonumber(ARGV[i])) end
if last(KEYS[2]) > now + longest then
  call('LSET', KEYS[2], -1, now + longest)
  expire(KEYS[2], now + longest + window)
end
if last(KEYS[2]) > now then return {now, last(KEYS[2]) - now} end -- a refusal in a cool-down does not count

-- It appends before it drops, because a server without memory refuses only the first write of a script.
local at = max(now, min(last(KEYS[1]), now + window))
call('RPUSH', KEYS[1], at)
expire(KEYS[1], at + window)
drop(KEYS[1], at - window)
drop(KEYS[2], at - window)
if call('LLEN', KEYS[1]) < threshold then return {now, 0} end

local length = tonumber(ARGV[4 + min(call('LLEN', KEYS[2]), lengths - 1)])
call('RPUSH', KEYS[2], now + length)
expire(KEYS[2], now + length + window)
call('LTRIM', KEYS[2], -lengths, -1)
call('DEL', KEYS[1])
return {now, length}
