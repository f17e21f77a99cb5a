-- Several requests in one call, one after the other at one time. Each is decided by tight.lua, as if it had come alone.
-- keys: those of the first request, then those of the second, and so on; each charge has its own.
-- arguments: one for each request, the first one of spend.lua.
-- reply: one for each request, that of spend.lua; nothing for a request that has to come alone. Either tight.lua cannot answer it, or a
--   command failed. In both cases nothing is written for it: a server refuses the first write of a call or none.

local time = redis.call('TIME')
time = {tonumber(time[1]), tonumber(time[2])}
local replies, base = {}, 0
for i = 1, #ARGV do
  local argument = ARGV[i]
  local done, reply = pcall(tight, argument, base, time)
  replies[i] = done and reply or false
  base = base + (#argument - 9) / 40
end
return replies
