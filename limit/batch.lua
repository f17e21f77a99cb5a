-- Several requests in one call, one after the other at one time. Each is decided by windows.lua or tight.lua, as if it had come alone.
-- keys: those of the first request, then those of the second, and so on; each charge has its own.
-- arguments: one string with a byte for each of the others, how many requests in a row it is for; then these, each the first argument of
--   spend.lua. All have one now.
-- reply: one string: now (double), then what each charge got (see windows.lua and tight.lua); the byte 32 for a request that has to come alone. Either
--   tight.lua cannot answer it, or a command failed. In both cases nothing is written for it: a server refuses the first write of a
--   call or none.

local now, from, unit = struct.unpack('>d', ARGV[2]), 0, 'PX'
if now > 0 then
  from, unit = now, 'PXAT'
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local keys, base, work = KEYS, 0, {'', '', '', '', false, false, false, false}
for i = 2, #ARGV do
  local argument, times = ARGV[i], string.byte(ARGV[1], i - 1)
  local size, plan = (#argument - 9) / 40, nil
  if times > 1 then plan = plan_windows(argument, size, now, from) end
  for _ = 1, times do
    local done, reply
    if plan then done, reply = pcall(windows, plan, base, size, unit, work) end
    if not (done and reply) then done, reply = pcall(tight, argument, base, now) end
    if not (done and reply) then
      keys[base + 1] = ' '
      for k = 2, size do keys[base + k] = '' end
    end
    base = base + size
  end
end
return struct.pack('>d', now) .. table.concat(keys)
