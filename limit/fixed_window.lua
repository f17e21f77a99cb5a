-- Fixed window, the twin of fixed_window.go.
-- keys: one string of at and used (see state.lua): tokens taken in the window that starts at at, aligned to the epoch or by edges.
--   A window of whole seconds, up to five days, is marked where it is kept: two microseconds for each of its seconds, and one more, are
--   added to at. So windows.lua knows that the time to live is that of this window, and not of a shorter one that a rule had before. No
--   window of milliseconds begins at such an instant.
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
    local start, known, seconds = nil, true, false
    if l.edges then
      start = span(l.edges, now)
      if not start then start, known = now, false end
    else
      start, seconds = now - fmod(now, l.window), l.window % 1000000 == 0
    end
    if seconds then
      t.at = t.at - t.at % 1000000
    elseif t.at > start and (l.edges or t.at > now and l.window % 2 == 0) then
      t.at = t.at - t.at % 2 -- no mark of another window stays
    end
    t.mark = 0
    if t.at > now + l.window then t.at, t.changed = start, true end -- set back by more than a window
    if t.at > now then return end
    if known and t.at < start then t.used = 0 end
    if t.used == 0 or not l.edges then t.at = start end
    if seconds and l.window <= 432000000000 then t.mark = l.window / 500000 + 1 end
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
    return {at = at, used = used, mark = 0}
  end

  local function write(key, t, unit, expires)
    write_numbers(key, t.at + t.mark, t.used, 0, unit, expires)
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write}
end
