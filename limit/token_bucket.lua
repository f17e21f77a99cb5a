-- Token bucket, the twin of token_bucket.go.
-- keys: one string of at, used and rem (see state.lua): tokens owed as of the instant at + rem/count microseconds.
-- arguments: limit = count, window (microseconds), burst; n tokens; now (microseconds).
-- reply: advance gives back what time has earned; left, wait and reset return a number; take returns what it took.

local function token_bucket()
  -- How many tokens the balance can be below zero: what comes back in a window, or in a minute if that is longer.
  local function depth(l)
    return min(share(l.count, max(l.window, 60000000), l.window), 1000000000000000)
  end

  local function advance(t, l, now)
    local used = t.used
    if used == 0 then return end
    local count, window = l.count, l.window
    if used > l.burst + count then -- a lowered limit
      used = min(used, l.burst + depth(l))
      t.used = used
    end
    if t.rem >= count then t.at, t.rem = t.at + 1, 0 end -- a lowered count: its fractions are coarser
    if t.at > now + window then t.at, t.rem, t.changed = now, 0, true end -- the clock was set back by more than a window
    if now <= t.at then return end
    local tokens, part = share(now - t.at, count, window)
    part = part - t.rem
    if part < 0 then
      local borrowed = ceiling(-part, window)
      tokens, part = tokens - borrowed, part + borrowed * window
    end
    if tokens >= used then
      t.at, t.rem, t.used = 0, 0, 0
      return
    end
    local since = ceiling(part, count)
    t.at, t.rem, t.used = now - since, since * count - part, used - tokens
  end

  local function left(t, l)
    return l.burst - t.used
  end

  local function take(t, l, n, now)
    n = max(n, -t.used)
    if t.used == 0 then t.at, t.rem = now, 0 end
    t.used = t.used + n
    if t.used == 0 then t.at, t.rem = 0, 0 end
    return n
  end

  -- The time until that many tokens have come back.
  local function wait_for(t, l, tokens, now)
    if tokens <= 0 then return 0 end
    local after, part = share(tokens, l.window, l.count)
    return t.at + after + ceiling(part + t.rem, l.count) - now
  end

  local function reset(t, l, now)
    return wait_for(t, l, t.used, now)
  end

  local function wait(t, l, n, now)
    if n > l.burst then return reset(t, l, now) end
    return wait_for(t, l, n - left(t, l), now)
  end

  -- The time after which n tokens are there that can be taken in advance, nil if that is not within most.
  local function due(t, l, n, most, now)
    if n > l.burst or n - left(t, l) > depth(l) then return nil end
    local time = wait(t, l, n, now)
    if time <= most then return time end
  end

  local function read(key)
    local at, used, rem = read_numbers(key)
    return {at = at, used = used, rem = rem}
  end

  local function write(key, t, unit, expires)
    write_numbers(key, t.at, t.used, t.rem, unit, expires)
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write, due = due}
end
