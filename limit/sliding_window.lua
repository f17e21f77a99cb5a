-- Sliding window, the twin of sliding_window.go.
-- keys: one string of at, used and prev (see state.lua): tokens taken in the window that starts at at, and in the one before.
-- arguments: limit = count, window (microseconds); n tokens; now (microseconds).
-- reply: advance moves to the window of now; left, wait and reset return a number; take returns what it took.

local function sliding_window()
  local function advance(t, l, now)
    local window = l.window
    local start = now - fmod(now, window)
    if t.at > now + window then t.at, t.changed = start, true end -- set back by more than a window
    if t.at > now then return end
    if t.at < start - window then t.used = 0 end
    if t.at < start then t.prev, t.used = t.used, 0 end
    t.at = start
  end

  local function left(t, l, now)
    local rest = t.at + l.window - max(now, t.at)
    local weight, part = share(t.prev, rest, l.window)
    if part > 0 then weight = weight + 1 end
    return l.count - weight - t.used
  end

  -- Gives back from the current window first, then from the one before.
  local function take(t, l, n)
    n = max(n, -t.used - t.prev)
    t.used = t.used + n
    if t.used < 0 then t.prev, t.used = t.prev + t.used, 0 end
    return n
  end

  local function reset(t, l, now)
    if t.used > 0 then return t.at + 2 * l.window - now end
    if t.prev > 0 then return t.at + l.window - now end
    return 0
  end

  -- How far into a window the count of the one before weighs no more than room.
  local function fits(prev, l, room)
    if prev <= room then return 0 end
    return l.window - share(room, l.window, prev)
  end

  local function wait(t, l, n, now)
    if n > l.count then return reset(t, l, now) end
    local room = l.count - t.used - n
    if room >= 0 then return max(t.at + fits(t.prev, l, room) - now, 0) end
    return t.at + l.window + fits(t.used, l, l.count - n) - now
  end

  local function read(key)
    local at, used, prev = read_numbers(key)
    return {at = at, used = used, prev = prev}
  end

  local function write(key, t, unit, expires)
    write_numbers(key, t.at, t.used, t.prev, unit, expires)
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write}
end
