-- One request, by tight.lua alone.
-- keys, arguments: those of spend.lua, without its second string.
-- reply: that of spend.lua; nothing where the general code has to decide, and then nothing is written.

return tight(ARGV[1], 0)
