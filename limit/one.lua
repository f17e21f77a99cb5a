-- One request: what tight.lua answers ends the call here, and the general code decides the rest.
-- keys, arguments, reply: those of spend.lua.

local reply = not ARGV[2] and tight(ARGV[1], 0)
if reply then return reply end
