-- Sliding log, the twin of sliding_log.go.
-- keys: one string of 16-byte records, two big-endian doubles each: a header (instant of the last rewrite, sum before the
--   first entry), then entries (instant, sum of tokens taken up to and with it). Entries are found by binary search with
--   GETRANGE and added by APPEND; the whole is read only when it is rewritten.
-- arguments: limit = count, window (microseconds); n tokens; now (microseconds).
-- reply: advance finds the first entry that counts; left, wait and reset return a number; take returns what it took.

local function sliding_log()
  local function read(key)
    local length = redis.call('STRLEN', key)
    if length == 0 then
      return {at = 0, prev = 0, size = 0, last_at = 0, last_sum = 0, kept = 0, added = 0, first = 0, base = 0}
    end
    if length < 32 or fmod(length, 16) ~= 0 then foreign() end
    local at, prev, first_at, first_sum = unpack_struct('>dddd', redis.call('GETRANGE', key, 0, 31))
    local last_at, last_sum = first_at, first_sum
    if length > 32 then last_at, last_sum = unpack_struct('>dd', redis.call('GETRANGE', key, -16, -1)) end
    if not (whole(at) and whole(prev) and whole(first_at) and whole(first_sum) and whole(last_at) and whole(last_sum)
      and prev < first_sum and first_sum <= last_sum and first_at <= last_at) then
      foreign()
    end
    return {key = key, at = at, prev = prev, size = length / 16 - 1, first_at = first_at, first_sum = first_sum,
      last_at = last_at, last_sum = last_sum, kept = last_sum, added = 0, first = 0, base = prev}
  end

  -- The entry at an index from 0: its instant and its sum.
  local function entry(t, index)
    if index == 0 then return t.first_at, t.first_sum end
    if index == t.size - 1 then return t.last_at, t.last_sum end
    return unpack_struct('>dd', redis.call('GETRANGE', t.key, 16 * index + 16, 16 * index + 31))
  end

  -- Finds the first entry after the edge, and the sum before it.
  local function locate(t, edge)
    if t.size == 0 or t.first_at > edge then
      t.first, t.base = 0, t.prev
      return
    end
    if t.last_at <= edge then
      t.first, t.base = t.size, t.last_sum
      return
    end
    local low, high, base = 0, t.size - 1, t.first_sum
    while high - low > 1 do
      local middle = divide(low + high, 2)
      local at, sum = entry(t, middle)
      if at > edge then high = middle else low, base = middle, sum end
    end
    t.first, t.base = high, base
  end

  -- The index of the entry that took the token of that number, and its instant.
  local function holder(t, number)
    local low, high, found = t.first, t.size - 1, nil
    while low < high do
      local middle = divide(low + high, 2)
      local _, sum = entry(t, middle)
      if sum >= number then high = middle else low = middle + 1 end
    end
    found = entry(t, low)
    return low, found
  end

  local function used(t)
    return max(t.kept - t.base, 0) + t.added
  end

  local function advance(t, l, now)
    local newest = max(t.at, t.last_at)
    if newest > now + l.window then -- the clock was set back by more than a window: what counted is one entry of now
      locate(t, newest - l.window)
      t.added, t.changed, t.rewrite = used(t), true, true
      t.at, t.prev, t.size, t.last_at, t.last_sum, t.kept = now, 0, 0, 0, 0, 0
      newest = now
    end
    t.now = max(now, newest)
    locate(t, t.now - l.window)
  end

  local function left(t, l)
    return l.count - used(t)
  end

  -- Gives back from the newest entries.
  local function take(t, l, n)
    n = max(n, -used(t))
    t.added = t.added + n
    if t.added < 0 then t.kept, t.added = t.kept + t.added, 0 end
    return n
  end

  -- The time until the oldest n tokens no longer count.
  local function gone(t, n, l, now)
    local sum = t.base + n
    if sum > t.kept then return t.now + l.window - now end
    local _, at = holder(t, sum)
    return at + l.window - now
  end

  local function reset(t, l, now)
    local n = used(t)
    if n == 0 then return 0 end
    return gone(t, n, l, now)
  end

  local function wait(t, l, n, now)
    if n > l.count then return reset(t, l, now) end
    local over = n - left(t, l)
    if over <= 0 then return 0 end
    return gone(t, over, l, now)
  end

  -- Drops the entries that no longer count and those that were given back.
  local function rewrite(key, t, unit, expires)
    local records, sum, last_at = {pack('>dd', t.now, t.base)}, max(t.kept, t.base), nil
    if t.kept > t.base then
      local last
      last, last_at = holder(t, t.kept)
      if last > t.first then records[2] = redis.call('GETRANGE', key, 16 * t.first + 16, 16 * last + 15) end
      if t.added == 0 or last_at ~= t.now then records[#records + 1] = pack('>dd', last_at, sum) end
    end
    if t.added > 0 then records[#records + 1] = pack('>dd', t.now, sum + t.added) end
    redis.call('SET', key, table.concat(records), unit, expires)
  end

  local function write(key, t, unit, expires)
    if used(t) == 0 then
      redis.call('DEL', key)
    elseif t.rewrite or t.size == 0 or t.kept ~= t.last_sum or 2 * t.first > t.size then
      rewrite(key, t, unit, expires)
    elseif t.added > 0 then
      local record = pack('>dd', t.now, t.kept + t.added)
      if t.last_at == t.now then
        redis.call('SETRANGE', key, 16 * t.size, record)
      else
        redis.call('APPEND', key, record)
      end
      redis.call(unit == 'PX' and 'PEXPIRE' or 'PEXPIREAT', key, expires)
    end
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write}
end
