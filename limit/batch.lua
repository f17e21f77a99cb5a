-- Several requests in one call, one after the other at one time. Each is decided by windows.lua or tight.lua, as if it had come alone.
-- keys: those of the first request, then those of the second, and so on; each charge has its own.
-- arguments: one for each request, the first one of spend.lua; all have one now.
-- reply: one string: now (double), then what each charge got (see tight.lua); the byte 32 for a request that has to come alone. Either
--   tight.lua cannot answer it, or a command failed. In both cases nothing is written for it: a server refuses the first write of a
--   call or none.

local now, from, unit = struct.unpack('>d', ARGV[1]), 0, 'PX'
if now > 0 then
  from, unit = now, 'PXAT'
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local keys, arguments, base, plans, states = KEYS, ARGV, 0, {}, {'', '', '', ''}
for i = 1, #arguments do
  local argument = arguments[i]
  local size, plan, done, reply = (#argument - 9) / 40, plans[argument], false, nil
  if not plan and argument == arguments[i + 1] then
    plan = plan_windows(argument, size, now, from)
    plans[argument] = plan
  end
  if plan then done, reply = pcall(windows, plan, base, size, unit, states) end
  if not (done and reply) then done, reply = pcall(tight, argument, base, now) end
  if not (done and reply) then
    keys[base + 1] = ' '
    for k = 2, size do keys[base + k] = '' end
  end
  base = base + size
end
return struct.pack('>d', now) .. table.concat(keys)
