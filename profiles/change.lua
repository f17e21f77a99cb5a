-- Writes a profile if it is still what the writer has read.
-- KEYS[1]: the profile. ARGV[1]: what was read, empty for none. ARGV[2]: what it shall be, empty for none.
-- ARGV[3]: when it ends, in ms since the epoch, 0 for never.
-- Reply: 1 if it was written, 0 if another writer came first.
local now = redis.call('GET', KEYS[1]) or ''
if now ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('UNLINK', KEYS[1])
  return 1
end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] ~= '0' then
  redis.call('PEXPIREAT', KEYS[1], ARGV[3])
end
return 1
