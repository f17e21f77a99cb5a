-- One request, by tight.lua alone.
-- keys, arguments: those of spend.lua, one key for each charge, without its second string.
-- reply: now (double), then what each charge got (see tight.lua); nothing where the general code has to decide, and then nothing is written.

local now, reply = tight(ARGV[1], 0)
return now and struct.pack('>d', now) .. (reply or table.concat(KEYS))
