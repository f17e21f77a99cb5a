-- Token bucket, the twin of token_bucket.go.
-- keys: one string of at, used and rem (see state.lua): tokens owed as of the instant at + rem/count microseconds. With rights
--   outstanding (lease.go): at is when they are dead, used includes them, rem holds the anchor's distance, lent and before.
-- arguments: limit = count, window (microseconds), burst; n tokens; now (microseconds).
-- reply: advance gives back what time has earned; left, wait and reset return a number; take returns what it took.

local function token_bucket()
  -- How many tokens the balance can be below zero: what comes back in a window, or in a minute if that is longer.
  local function depth(l)
    return min(share(l.count, max(l.window, 60000000), l.window), 1000000000000000)
  end

  -- Gives back the tokens that time has earned by now.
  local function earn(t, l, now)
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
    if t.lent then return l.burst - t.used - t.lent - t.before end
    return l.burst - t.used
  end

  local function take(t, l, n, now)
    n = max(n, -t.used)
    if t.used == 0 then t.at, t.rem = now, 0 end
    t.used = t.used + n
    if t.used == 0 then t.at, t.rem = 0, 0 end
    return n
  end

  -- Moves the anchor to a whole microsecond, so that it can be stored.
  local function whole_anchor(t)
    if t.rem > 0 then t.at, t.rem = t.at + 1, 0 end
  end

  -- Reads rights outstanding from the form in which they are stored, if it is that.
  local function thaw(t)
    if fmod(t.at, 100000) ~= 0 then return end
    local before = fmod(t.rem, 131072)
    local lent = fmod((t.rem - before) / 131072, 131072)
    if lent + before == 0 or lent + before > t.used then return end
    t.epoch, t.lent, t.before = t.at / 100000 - 2, lent, before
    t.at, t.used, t.rem = t.at - (t.rem - lent * 131072 - before) / 17179869184, t.used - lent - before, 0
  end

  -- Lets the rights of epochs that are over count as spent at the instant at which they died.
  local function roll(t, l, now)
    local epoch = divide(now, 100000)
    if t.epoch > epoch + 2 then -- the clock was set back by more than a lease lives
      take(t, l, t.lent + t.before, now)
      t.lent, t.before, t.changed = 0, 0, true
    end
    while t.epoch < epoch and t.lent + t.before > 0 do
      t.epoch = t.epoch + 1
      if t.before > 0 then
        earn(t, l, t.epoch * 100000)
        take(t, l, t.before, t.epoch * 100000)
      end
      t.before, t.lent = t.lent, 0
    end
    if t.lent + t.before == 0 then t.lent = nil end
  end

  -- Charges rights that have died by now, and gives back the tokens that time has earned.
  local function advance(t, l, now)
    if not t.lent and t.rem >= 17179869184 and t.used < 4294967296 and l.count < 4294967296 then thaw(t) end
    if t.lent then roll(t, l, now) end
    earn(t, l, now)
    if t.lent then
      whole_anchor(t)
      if t.used == 0 then t.at = (t.epoch + 2) * 100000 - 1 end -- nothing is owed before the rights end; thaw says the same
    end
  end

  -- Brings rights outstanding into the form in which they are stored. Where the anchor does not fit, all are charged when they die.
  local function freeze(t)
    local dead, rem = (t.epoch + 2) * 100000, 0
    local offset = t.used == 0 and 1 or dead - t.at
    if offset >= 1 and offset < 524288 then rem = offset * 17179869184 + t.lent * 131072 + t.before end
    t.at, t.rem, t.used, t.lent = dead, rem, t.used + t.lent + t.before, nil
  end

  -- The time until that many tokens have come back.
  local function wait_for(t, l, tokens, now)
    if tokens <= 0 then return 0 end
    local after, part = share(tokens, l.window, l.count)
    return t.at + after + ceiling(part + t.rem, l.count) - now
  end

  local function reset(t, l, now)
    if t.lent then -- if all rights are spent, it is not full before they are dead
      local at = t.used == 0 and now or t.at
      local whole = {at = max(at, (t.epoch + 2) * 100000), rem = t.rem}
      return wait_for(whole, l, t.used + t.lent + t.before, now)
    end
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
    if t.lent then freeze(t) end
    write_numbers(key, t.at, t.used, t.rem, unit, expires)
  end

  return {read = read, advance = advance, left = left, take = take, wait = wait, reset = reset, write = write, due = due,
    freeze = freeze, whole_anchor = whole_anchor}
end
