-- Sliding log: the functions that charge.lua calls for algorithm 5; they stand in front of it where a call has one.
--
-- The value is a list: sum, at, sum, at, sum, … An entry is an instant `at` at which something was taken, and the sum
-- of all that was taken up to then; the first sum is what was taken before. An entry counts from its instant on until,
-- and not at, one window later: what counts is the last sum less the one before the first entry that counts.

-- The first of the entries low to high whose instant (offset 0) or sum (offset 1) is above a value; there is one.
local function find(key, low, high, offset, value)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = tonumber(redis.call('LINDEX', key, 2 * middle - 1 + offset)) or 0
    if found > value then high = middle else low = middle + 1 end
  end
  return low
end

-- A log as of now: `used` tokens count, `kept` of them in the entries first to size, the others are taken at `at`.
local function read_log(key, now, window)
  local c = {key = key, at = now, used = 0, kept = 0, size = 0, first = 1, base = 0}
  local last = redis.pcall('LRANGE', key, -2, -1)
  if last.err and not string.find(last.err, 'WRONGTYPE', 1, true) then error(last) end
  if #last == 0 and not last.err then return c end
  local newest, sum = tonumber(last[1]), tonumber(last[2])
  c.wrong = not newest or not sum or redis.call('LLEN', key) % 2 == 0
  if c.wrong then return c end
  c.size, c.newest, c.sum = (redis.call('LLEN', key) - 1) / 2, newest, sum
  local at = math.max(now, newest) -- no new entry is before the newest one
  c.first, c.base = c.size + 1, sum
  if newest > at - window then
    c.first = find(key, 1, c.size, 0, at - window)
    c.base = tonumber(redis.call('LINDEX', key, 2 * c.first - 2)) or 0
  end
  c.used = sum - c.base
  c.changed = newest > now + window -- the clock was set back far: what counted then is taken now
  if not c.changed then c.at, c.kept = at, c.used end
  return c
end

-- The time until the oldest tokens, so many of them, do not count any more.
local function gone(c, tokens, window, now)
  local at = c.at
  if tokens <= c.kept then
    local number = find(c.key, c.first, c.size, 1, c.base + tokens - 1)
    at = number == c.size and c.newest or tonumber(redis.call('LINDEX', c.key, 2 * number - 1)) or 0
  end
  return at + window - now
end

-- Enters what counts after a charge. A refund gives back the oldest entries, whichever the tokens are from: what stays
-- counts longer than it would, never shorter. Returns how long until nothing counts, and until a cost fits.
local function settle_log(c, used, cost, most, window, now)
  local oldest = math.min(c.used - used, c.kept)
  c.used = used
  if oldest > 0 then
    c.base, c.kept, c.lowered = c.base + oldest, c.kept - oldest, true
    if c.kept > 0 then c.first = find(c.key, c.first, c.size, 1, c.base) end
  end
  local over = used + cost - most
  return used > 0 and gone(c, used, window, now) or 0, over > 0 and cost <= most and gone(c, over, window, now) or 0
end

-- Writes the log. It appends before it trims, because a server without memory refuses only the first write of a script.
local function write_log(key, c, life)
  local call = redis.call
  if c.used == 0 then
    call('DEL', key)
  elseif c.kept == 0 then
    call('RPUSH', key, 0, c.at, c.used)
    call('LTRIM', key, -3, -1)
  else
    if c.lowered then call('LSET', key, 2 * c.first - 2, c.base) end
    if c.used > c.kept and c.newest == c.at then
      call('LSET', key, -1, c.base + c.used)
    elseif c.used > c.kept then
      call('RPUSH', key, c.at, c.base + c.used)
    end
    if c.first > 1 then call('LTRIM', key, 2 * c.first - 2, -1) end
  end
  if c.used > 0 then call('PEXPIREAT', key, life) end
end
