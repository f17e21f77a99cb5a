-- The common request in one straight line: spends, peeks and debits on distinct keys, without a second argument.
-- keys: the distinct keys of the charges, after as many others as base says.
-- arguments: argument, the first one of spend.lua; base; time, the reply of TIME if it has been asked for.
-- reply: that of spend.lua; nothing where the request needs more than this file knows, and then nothing is written.
--
-- A call defines every function of the other files anew, which costs more than its decision. With one.lua this file stands in front of
-- them, and a call that it answers does not reach them. With batch.lua it decides several requests in one call. Its arithmetic is that of token_bucket.lua, sliding_window.lua and
-- fixed_window.lua where every number is below exact, no state lies ahead of the clock, and no limit was lowered; all else is left to
-- them. x % y has no error there: a quotient of integers below 2^53 - 1 never rounds up to the next integer.

local function tight(argument, base, time)
  local keys, size = KEYS, (#argument - 9) / 40
  if size == 0 then return end
  local call, pack, unpack, format, exact = redis.call, struct.pack, struct.unpack, string.format, 8e15
  local now, refused, key, algorithm, op, mode, each, count, window, burst, cost = unpack('>dBI4BBBBdddd', argument)
  local unit, from = 'PXAT', now
  if now <= 0 then
    time = time or call('TIME')
    unit, from, now = 'PX', 0, time[1] * 1000000 + time[2]
  end

  -- Of several charges: values to write, their times to live, and replies. Tables of four from the start need not grow.
  local values, lives, replies
  if size > 1 then
    values, lives, replies = {false, false, false, false}, {0, 0, 0, 0}, {'', '', '', ''}
  end
  -- quotas: 1 while all of them refuse, 2 when one is open; taken: a charge without each has taken.
  local i, quotas, taken = 1, 0, false

  while true do
    if key ~= i or op == 2 or algorithm == 4 or count == 0 then return end

    -- read_numbers
    local at, used, rem, prev = 0, 0, 0, 0
    local value = call('GET', keys[base + i])
    if value then
      local length, third = #value, 0
      if length == 12 then
        at, used = unpack('>dI4', value)
      elseif length == 16 then
        at, used, third = unpack('>dI4I4', value)
      else
        return
      end
      if not (at >= 0 and at <= now and at % 1 == 0) or used + third == 0 then return end
      if algorithm == 1 then rem = third else prev = third end
    end

    -- advance and left; rest is what is left of an aligned window
    local left, rest
    if algorithm == 1 then
      if used > burst + count or rem >= count then return end
      if used > 0 and now > at then
        local earned = (now - at) * count - rem
        if earned >= exact then return end
        local part = earned % window
        local tokens = (earned - part) / window
        if tokens >= used then
          at, rem, used = 0, 0, 0
        else
          rem = -part % count
          at, used = now - (part + rem) / count, used - tokens
        end
      end
      left = burst - used
    else
      local start = now - now % window
      rest = start + window - now
      if algorithm == 2 then
        if at < start then prev, used = at < start - window and 0 or used, 0 end
        local weight = prev * rest
        if weight >= exact then return end
        left = count - (weight + -weight % window) / window - used
      else
        if prev > 0 then return end
        if at < start then used = 0 end
        left = count - used
      end
      at = start
    end

    -- demand and take: said is the outcome, n what is taken
    local said, n = 1, 0
    if op == 3 then
      n = left + count
      if cost < n then n = cost elseif n < 0 then n = 0 end
    elseif cost <= left then
      if op == 0 then n = cost end
    else
      said = 2
      if mode == 0 then refused = 1 end
      if op == 0 and each == 1 and left > 0 then n = left end
    end
    if mode == 2 and quotas < 2 then quotas = 3 - said end
    if n > 0 and each == 0 then
      if refused == 1 then n = 0 else taken = true end
    end
    if n > 0 then
      if used == 0 and algorithm == 1 then at, rem = now, 0 end
      used, left = used + n, left - n
    end

    -- reset
    local reset = rest
    if algorithm == 1 then
      reset = 0
      if used > 0 then
        local after = used * window + rem
        if after >= exact then return end
        reset = at + (after + -after % count) / count - now
      end
    elseif algorithm == 2 then
      if used > 0 then reset = rest + window elseif prev == 0 then reset = 0 end
    end

    -- report
    local remaining, reply = left, nil
    if left < 0 then remaining = 0 end
    if said == 1 then
      if i == 1 then
        reply = pack('>dBdddd', now, 1, remaining, n, reset, 0)
      else
        reply = pack('>Bdddd', 1, remaining, n, reset, 0)
      end
    else
      local retry = reset
      if algorithm == 1 then
        if cost <= burst then
          local after = (cost - left) * window + rem
          retry = at + (after + -after % count) / count - now
        end
      elseif algorithm == 2 and cost <= count then
        local room, weighs = count - used - cost, prev
        retry = rest - window
        if room < 0 then room, weighs, retry = count - cost, used, rest end
        if weighs > room then
          room = room * window
          if room >= exact then return end
          retry = retry + window - (room - room % weighs) / weighs
        end
      end
      if i == 1 then
        reply = pack('>dBdddddddd', now, 6, remaining, n, reset, retry, at, rem, used, prev)
      else
        reply = pack('>Bdddddddd', 6, remaining, n, reset, retry, at, rem, used, prev)
      end
    end

    -- write_numbers; a time to live is rounded up to milliseconds, plus one
    value = false
    if n > 0 then
      local third = rem + prev
      if used >= 4294967296 or third >= 4294967296 then return end
      if third > 0 then value = pack('>dI4I4', at, used, third) else value = pack('>dI4', at, used) end
    end
    local life = (from + reset + 1999) / 1000
    if size == 1 then
      if value then call('SET', keys[base + 1], value, unit, format('%d', life)) end
      return reply
    end
    values[i], lives[i], replies[i] = value, life, reply

    -- The next charge. A request that turns out refused starts again if one has taken that must not.
    i = i + 1
    if i > size then
      if quotas == 1 then refused = 1 end
      if refused == 0 or not taken then break end
      i, taken = 1, false
    end
    key, algorithm, op, mode, each, count, window, burst, cost = unpack('>I4BBBBdddd', argument, 40 * i - 30)
  end

  for i = 1, size do
    if values[i] then call('SET', keys[base + i], values[i], unit, format('%d', lives[i])) end
  end
  return table.concat(replies)
end
