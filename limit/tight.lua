-- The common request in one straight line: spends, peeks and debits on distinct keys, without a second argument.
-- keys: one for each charge, in their order, after as many others as base says.
-- arguments: argument, the first one of spend.lua; base; now, the server's time if it has been asked for.
-- reply: now; what each charge got takes the place of its key in KEYS, and of a single one is the second result. Nothing where the
--   request needs more than this file knows, and then nothing is written and KEYS is as it was.
--
-- What a charge got is its state as it is kept (see state.lua) if it was allowed and took its cost; Call computes the rest of the
-- decision from it. All others have a byte in front: 32, plus the outcome, plus 4 where the state is one of 16 bytes, plus 8 where the
-- cost was taken. Without the 8 follows what was taken (double). No state begins with such a byte: a double of 0 begins with 0, one
-- from 1 on with 63 or more. 32 alone is a whole request that has to come alone (batch.lua).
--
-- A call defines every function of the other files anew, which costs more than its decision. With one.lua this file stands in front of
-- them, and a call that it answers does not reach them. With batch.lua it decides several requests in one call. Its arithmetic is that
-- of token_bucket.lua, sliding_window.lua and fixed_window.lua where every number is below exact, no state lies ahead of the clock, and
-- no limit was lowered; all else is left to them. x % y has no error there: a quotient of integers below 2^53 - 1 never rounds up to
-- the next integer.

local function tight(argument, base, now)
  local keys, size = KEYS, (#argument - 9) / 40
  local call, pack, unpack, format, exact = redis.call, struct.pack, struct.unpack, string.format, 8e15
  local given, refused, algorithm, op, mode, each, count, window, burst, cost = unpack('>dBxxxxBBBBdddd', argument)
  local unit, from = 'PX', 0
  if given > 0 then
    unit, from, now = 'PXAT', given, given
  elseif not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end

  -- Of several charges: values to write, their times to live, and replies. Tables of four from the start need not grow.
  local values, lives, replies
  if size > 1 then
    values, lives, replies = {false, false, false, false}, {'', '', '', ''}, {'', '', '', ''}
  end
  -- quotas: 1 while all of them refuse, 2 when one is open; taken: a charge without each has taken; full, life: the last time to live.
  local i, quotas, taken, full, life = 1, 0, false, 0, nil

  while true do
    if op == 2 or algorithm == 4 or count == 0 then return end

    -- read_numbers; third is rem of a bucket, prev of a window
    local at, used, third = 0, 0, 0
    local value = call('GET', keys[base + i])
    if value then
      local length = #value
      if length == 12 then
        at, used = unpack('>dI4', value)
      elseif length == 16 then
        at, used, third = unpack('>dI4I4', value)
      else
        return
      end
      if not (at >= 0 and at % 1 == 0) or used + third == 0 then return end
      if algorithm == 3 and window % 1000000 == 0 then at = at - at % 1000000 end
      if at > now then return end
    end

    -- advance and left
    local left
    if algorithm == 1 then
      if used > burst + count or third >= count then return end
      if used > 0 and now > at then
        local earned = (now - at) * count - third
        if earned >= exact then return end
        local part = earned % window
        local tokens = (earned - part) / window
        if tokens >= used then
          at, third, used = 0, 0, 0
        else
          third = -part % count
          at, used = now - (part + third) / count, used - tokens
        end
      end
      left = burst - used
    else
      local start = now - now % window
      if algorithm == 2 then
        if at < start then third, used = at < start - window and 0 or used, 0 end
        local weight = third * (start + window - now)
        if weight >= exact then return end
        left = count - (weight + -weight % window) / window - used
      else
        if third > 0 then return end
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
    if n > 0 and used == 0 and algorithm == 1 then at, third = now, 0 end
    used = used + n

    -- write_numbers
    if used >= 4294967296 or third >= 4294967296 then return end
    if third > 0 then
      value, said = pack('>dI4I4', at, used, third), said + 4
    elseif algorithm == 3 and window % 1000000 == 0 and window <= 432000000000 then
      value = pack('>dI4', at + window / 500000 + 1, used)
    else
      value = pack('>dI4', at, used)
    end
    local reply = value
    if n ~= cost then
      reply = pack('>Bd', 32 + said, n) .. value
    elseif said == 5 then
      reply = '-' .. value
    elseif said > 1 then
      reply = pack('B', 40 + said) .. value
    end

    -- reset of what is written; a time to live is rounded up to milliseconds, plus one
    if n > 0 then
      local ends = at + window
      if algorithm == 1 then
        local after = used * window + third
        if after >= exact then return end
        ends = at + (after + -after % count) / count
      elseif algorithm == 2 then
        ends = ends + window
      end
      if ends ~= full then
        full, life = ends, format('%d', (ends - now + from + 1999) / 1000)
      end
    end
    if size == 1 then
      if n > 0 then call('SET', keys[base + 1], value, unit, life) end
      keys[base + 1] = reply
      return now, reply
    end
    values[i], lives[i], replies[i] = n > 0 and value, life, reply

    -- The next charge. A request that turns out refused starts again if one has taken that must not.
    i = i + 1
    if i > size then
      if quotas == 1 then refused = 1 end
      if refused == 0 or not taken then break end
      i, taken = 1, false
    end
    algorithm, op, mode, each, count, window, burst, cost = unpack('>BBBBdddd', argument, 40 * i - 26)
  end

  for i = 1, size do
    if values[i] then call('SET', keys[base + i], values[i], unit, lives[i]) end
    keys[base + i] = replies[i]
  end
  return now
end
