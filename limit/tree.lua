-- Decides spends of descriptor trees: fixed windows, each charge by itself. A refused charge takes what is left.
--
-- KEYS      a counter per charge: the tokens that its window counts. The key's last ms is that of the window.
-- ARGV[1]   now in µs since the epoch, 0 for the server's clock; only tests give another.
-- ARGV[2…]  per charge: tokens, from 1; count; window in ms.
-- Reply: now, then per charge what it took and what the window counts; -1, -1 for a value that no limit wrote.

local now, clock = tonumber(ARGV[1]), redis.call('TIME')
if now == 0 then now = clock[1] * 1000000 + clock[2] end
local reply = {now, 0, 0}
for i, key in ipairs(KEYS) do
  local tokens, count, window = tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1])
  local used, took = redis.pcall('INCRBY', key, ARGV[3 * i - 1]), tokens
  if type(used) == 'table' then
    local err, find = used.err, string.find
    if not (find(err, 'WRONGTYPE') or find(err, 'not an integer') or find(err, 'overflow')) then return used end
    used, took = -1, -1
  else
    -- Redis reads keys as of the beginning of the script, when another window may have been the present one.
    if used ~= tokens and now % (1000 * window) < 50000 and (redis.call('PEXPIRETIME', key) + 1) * 1000 <= now then
      used = redis.call('SET', key, ARGV[3 * i - 1]) and tokens
    end
    if used == tokens then -- a new window; in its last ms the next one, because the key may be deleted at once
      redis.call('PEXPIREAT', key, string.format('%d', (math.floor((now + 1000) / (1000 * window)) + 1) * window - 1))
    end
    if used > count then
      took = math.max(tokens - (used - count), 0)
      used = redis.call('DECRBY', key, string.format('%d', tokens - took))
    end
  end
  reply[2 * i], reply[2 * i + 1] = took, used
end
return reply
