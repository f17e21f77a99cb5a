-- Leases, the twin of lease.go: one counter takes in what became of tokens that it has lent, and lends more.
-- keys: the key of the counter.
-- arguments: one string, packed big-endian: now (double, microseconds since the epoch, 0 for the server's own time; only tests give it),
--   algorithm (byte), count, window in microseconds, burst, want, least, parts, then two reports: epoch, spent, returned (doubles).
-- reply: one string, packed big-endian: now, tokens, epoch, until (doubles), then the state: at, rem, used, prev (doubles).

local now, algorithm, count, window, burst, want, least, parts, epoch1, spent1, returned1, epoch2, spent2, returned2 =
  unpack_struct('>dBdddddddddddd', ARGV[1])
local given = now > 0
if not given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key, l = KEYS[1], {count = count, window = window, burst = burst}
local fills = algorithm == 1
local ops = fills and token_bucket() or algorithm == 2 and sliding_window() or fixed_window()
local t = ops.read(key)
ops.advance(t, l, now)

-- Takes in what became of one epoch's tokens. A report of an epoch that is over is ignored: its tokens count as spent already.
local function report(epoch, spent, returned)
  if spent + returned == 0 then return end
  if not fills then
    if epoch == t.at and returned > 0 then
      local back = min(returned, t.used)
      t.used = t.used - back
      if back > 0 then t.changed = true end
    end
    return
  end
  if not t.lent then return end
  local of = epoch == t.epoch and 'lent' or epoch == t.epoch - 1 and 'before'
  if not of then return end
  local known = min(t[of], spent + returned)
  t[of] = t[of] - known
  spent = min(spent, known)
  if spent > 0 then ops.take(t, l, spent, now) end
  if known > 0 then t.changed = true end
  if t.lent + t.before == 0 then t.lent = nil end
end

report(epoch1, spent1, returned1)
report(epoch2, spent2, returned2)
ops.advance(t, l, now)
local left = ops.left(t, l, now)
local n = min(want, left, ceiling(max(left, 0), max(parts, 1)), 131071)
if n < max(least, 1) then n = 0 end

local epoch, ends
if fills then
  epoch, ends = divide(now, 100000), now
  if t.lent then epoch = max(epoch, t.epoch) end
  local lent, before = t.lent or 0, t.lent and t.before or 0
  n = min(n, 131071 - lent)
  if n <= 0 or t.used + lent + before + n > 4294967295 or t.used > 0 and t.at > now then
    n = 0
  else
    t.lent, t.before, t.epoch, t.changed = lent + n, before, epoch, true
    ops.whole_anchor(t)
    ends = (epoch + 2) * 100000
  end
else
  epoch, ends = t.at, min(t.at + window, now + 200000)
  t.used = t.used + n
  if n > 0 then t.changed = true end
end
local reset = ops.reset(t, l, now)
if t.lent then ops.freeze(t) end
if t.changed then
  if given then
    ops.write(key, t, 'PXAT', ceiling(now + reset, 1000) + 1)
  else
    ops.write(key, t, 'PX', ceiling(reset, 1000) + 1)
  end
end
local at, prev = t.at + (t.mark or 0), t.prev or 0
if t.used + prev == 0 then at = 0 end
return pack('>dddddddd', now, n, epoch, ends, at, t.rem or 0, t.used, prev)
