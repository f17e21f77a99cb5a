-- Notes in each of KEYS that the sidecar ARGV[1] lives, drops those that showed no sign for ARGV[2] ms, and returns how
-- many each key holds, below zero where this sidecar was missing. Signs from the future are those of a clock that was
-- set back. With ARGV[2] = 0 the sidecar leaves instead.
local t = redis.call('TIME')
local now, counts = t[1] * 1000 + math.floor(t[2] / 1000), {}
for i, key in ipairs(KEYS) do
  if ARGV[2] == '0' then
    redis.call('ZREM', key, ARGV[1])
  else
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now - ARGV[2])
    redis.call('ZREMRANGEBYSCORE', key, '(' .. now, '+inf')
    local missing = redis.call('ZADD', key, now, ARGV[1])
    redis.call('PEXPIRE', key, ARGV[2])
    counts[i] = redis.call('ZCARD', key) * (1 - 2 * missing)
  end
end
return counts
