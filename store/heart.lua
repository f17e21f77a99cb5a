-- Notes that ARGV[1] lives, forgets who did not show up for ARGV[2] ms, and answers how many there are. Signs from the future are
-- those of a clock that was set back; whoever lives shows up again.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
