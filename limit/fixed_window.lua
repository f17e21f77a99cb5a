-- Fixed window, the twin of fixed_window.go.
-- keys: one string of at and used (see state.lua): tokens taken in the window that starts at at, aligned to the epoch or by edges.
-- arguments: limit = count, window (microseconds), edges (of a calendar's windows, microseconds; nil: none); n tokens; now (microseconds).
-- reply: advance moves to the window of now; left, wait and reset return a number; take returns what it took.

local function fixed_window()
  -- When the window of a calendar begins and ends that holds an instant; nothing outside of the edges.
  local function span(edges, at)
    if at < edges[1] then return end
    for i = 2, #edges do
      if at < edges[i] then return edges[i - 1], edges[i] end
    end
  end

  local function advance(t, l, now)
    local start, known = nil, true
    if l.edges then
      start = span(l.edges, now)
      if not start then start, known = now, false end
    else
      start = now - fmod(now, l.window)
    end
    if t.at > now + l.window then t.at, t.changed = start, true end -- set back by more than a window
    if t.at > now then return end
    if known and t.at < start then t.used = 0 end
    if t.used == 0 or not l.edges then t.at = start end
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
    if l.edges then
      local at = max(t.at, now)
      local _, ends = span(l.edges, at)
      return (ends or at + l.window) - now
    end
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
