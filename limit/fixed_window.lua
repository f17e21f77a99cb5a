-- Fixed window, the twin of fixed_window.go.
-- keys: one string of at and used (see state.lua): tokens taken in the window that starts at at, aligned to the epoch.
-- arguments: limit = count, window (microseconds); n tokens; now (microseconds).
-- reply: advance moves to the window of now; left, wait and reset return a number; take returns what it took.

local function fixed_window()
  local function advance(t, l, now)
    local start = now - fmod(now, l.window)
    if t.at > now + l.window then t.at, t.changed = start, true end -- set back by more than a window
    if t.at > now then return end
    if t.at < start then t.used = 0 end
    t.at = start
  end

  local function left(t, l)
    return l.count - t.used
  end

  local function take(t, l, n)
    n = max(n, -t.used)
    t.used = t.used + n
    return n
  end

  local function reset(t, l, now)
    return t.at + l.window - now
  end

  local function wait(t, l, n, now)
    if n <= left(t, l) then return 0 end
    return reset(t, l, now)
  end

  local function read(key)
    local at, used = read_numbers(key)
    return {at = at, used = used}
  end

  local function write(key, t, unit, expires)
    write_numbers(key, t.at, t.used, 0, unit, expires)
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write}
end
