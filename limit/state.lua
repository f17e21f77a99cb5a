-- How the states of the token bucket and of both windows are kept as text. The sliding log keeps its own.
-- keys: one string, two or three decimal numbers: at, used and, unless it is 0, a third: rem of a bucket, prev of a window.
-- arguments: key; the numbers; expires (see spend.lua). reply: read returns the numbers, zeros where there is no key.

local function foreign(key)
  error('key ' .. key .. ' holds a value that no limit wrote; delete it or use another key prefix')
end

local function read_text(key)
  local value = redis.call('GET', key)
  if not value then return 0, 0, 0 end
  local at, used, third = string.match(value, '^(%d+) (%d+) ?(%d*)$')
  if not at then foreign(key) end
  at, used, third = tonumber(at), tonumber(used), tonumber(third) or 0
  if at >= max_exact or used >= max_exact or third >= max_exact then foreign(key) end
  return at, used, third
end

-- Numbers beyond 1e14 must not meet tostring or .., which round them to 14 digits.
local function write_text(key, at, used, third, unit, expires)
  if used == 0 and third == 0 then
    redis.call('DEL', key)
  elseif third == 0 then
    redis.call('SET', key, string.format('%.0f %.0f', at, used), unit, expires)
  else
    redis.call('SET', key, string.format('%.0f %.0f %.0f', at, used, third), unit, expires)
  end
end
