-- Notes in each of KEYS that the sidecar ARGV[1] lives, drops those that showed no sign for ARGV[2] ms, and returns how many each key
-- holds, below zero where this sidecar itself was missing. Signs from the future are those of a clock that was set back; a sidecar
-- that lives shows the next one within a second. With ARGV[2] = 0 the sidecar leaves instead.
local counts = {}
if ARGV[2] == '0' then
  for i = 1, #KEYS do
    redis.call('ZREM', KEYS[i], ARGV[1])
  end
  return counts
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local stamp = string.format('%.0f', now)
for i = 1, #KEYS do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - ARGV[2])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '(' .. stamp, '+inf')
  local missing = redis.call('ZADD', KEYS[i], stamp, ARGV[1])
  redis.call('PEXPIRE', KEYS[i], ARGV[2])
  counts[i] = redis.call('ZCARD', KEYS[i]) * (1 - 2 * missing)
end
return counts
