-- Decides requests. The charges of a request are taken all or none; the requests of one call are independent.
--
-- KEYS      of each request: the keys of its charges, then the cool-down lists of those charges that have a penalty.
--           Charges may share a key: each sees what those before it took.
-- ARGV[1]   now in µs since the epoch, 0 for the server's clock; only tests give another.
-- ARGV[2…]  per request a string: a byte, 1 if the request is refused already; then per charge five bytes, six doubles:
--   algorithm  1 token bucket, 2 sliding window, 3 fixed window, 4 calendar window, 5 sliding log (needs log.lua)
--   op         0 spend, 1 peek, 2 refund, 3 debit; of a lease, alone in a request: 4 lend, 5 spent, 6 returned
--   mode       0 enforced, 1 shadow, 2 quota
--   each       1: charged also if the request is refused, and a spend that is refused takes what is left
--   penalty    0 none, 1 its cool-down refuses, 2 its cool-down only shows
--   cost       tokens
--   most       tokens: burst of a bucket, count of the others; -1 for a limit of 0, which refuses everything
--   window     µs; bucket: units per token; calendar: end of the last window
--   fine       bucket: units per µs; sliding window: µs per step of the weight; calendar: end of the present window
--   debt       bucket: µs that it may owe beyond empty; calendar: end of the next window
--   time       spend: longest wait of a throttle in µs; refund: its end, 0 for none; lend: the parts of what is left;
--              spent, returned: the end of the lease
-- Reply: now, then per charge five integers:
--   outcome    1 allowed, 2 refused, 3 refused by a cool-down; 4, 5: as 1, 2 beside a cool-down that only shows;
--              0 the key holds a value that no limit wrote, 6 another key of the request does: nothing is taken
--   remaining  tokens, at least 0
--   charged    tokens, negative for a refund
--   reset      µs until full, or until the window ends
--   wait       µs. refused: until the cost could pass; allowed: until the tokens are due; lend: until the lease ends
--
-- README.md describes the values. All numbers are integers below 2^53: quotients of them round up or down exactly.

local BUCKET, SLIDING, CALENDAR, LOG, ENFORCED, QUOTA = 1, 2, 4, 5, 0, 2
local SPEND, PEEK, REFUND, DEBIT, LEND, RETURNED = 0, 1, 2, 3, 4, 6
local FOREIGN, ALLOWED, REFUSED, COOLING, BESIDE = 0, 1, 2, 3, 6
local EPOCH = 100000 -- µs; what a bucket lends in one epoch is on lease until the end of the next one
local call, pcall, unpack, format = redis.call, redis.pcall, struct.unpack, string.format
local min, max, floor, ceil = math.min, math.max, math.floor, math.ceil

local now, clock = tonumber(ARGV[1]), call('TIME')
if now == 0 then now = clock[1] * 1000000 + clock[2] end

local function foreign(reply) -- what stands for a value of another type; any other error fails the call
  if not string.find(reply.err, 'WRONGTYPE', 1, true) then error(reply) end
  return 'foreign'
end

local reply, size, place = {now, 0, 0, 0, 0, 0}, 1, 0 -- size, place: what earlier requests have of reply and KEYS
local values, lives, adds = {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0} -- by charge: what its key gets, until when

for number = 2, #ARGV do
  local request = ARGV[number]
  local charges, refused, broken = (#request - 1) / 53, string.byte(request) == 1, false
  local start, again, dry, latest, cools = size, false, refused, nil, 0

  repeat -- again without what a refused request must not take
    local quotas, open, taken = false, false, false
    size, cools, latest = start, 0, charges > 1 and {} -- latest: by key, the last charge that changed its value
    for i = 1, charges do
      local algorithm, op, mode, each, penalty, cost, most, window, fine, debt, time =
        unpack('>BBBBBdddddd', request, 53 * i - 51)
      local key = KEYS[place + i]
      local before = latest and latest[key]

      -- Read the value: up to five numbers, or a log.
      local value, first, second, lent, older, ends, log, wrong = nil, nil, 0, 0, 0, 0, nil, false
      if algorithm == LOG then
        log = before and values[before] or read_log(key, now, window)
        wrong = log.wrong
      elseif before then
        value = values[before]
      else
        value = pcall('GET', key)
        if type(value) == 'table' then value = foreign(value) end
      end
      if value and value ~= '' then
        first = tonumber(value)
        if not first then
          first, second, lent, older, ends = string.match(value, '^(%d+) (%d+) ?(%d*) ?(%d*) ?(%d*)$')
          first, second = tonumber(first), tonumber(second) or 0
          lent, older, ends = tonumber(lent) or 0, tonumber(older) or 0, tonumber(ends) or 0
        end
        if not (first and first >= 0 and first < 2 ^ 53 and first % 1 == 0) then wrong, first = true, nil end
      end
      broken = broken or wrong

      -- Bring it to now: `used` of `cap` units are taken, and a token has `unit` of them.
      local used, prev, cap, unit, tail, steps, stored, changed = 0, 0, most, 1, 0, 0, false, false
      if algorithm == BUCKET then
        -- It is full at the instant `first`, and `second` units later. `lent` tokens are on lease until `ends`, `older`
        -- until an epoch before. What is lent is owed and does not come back: else both could be spent.
        cap, unit, used = most * window, window, first and (first - now) * fine + min(second, fine) or 0
        if lent + older > 0 then
          local latest_end = now - now % EPOCH + 3 * EPOCH
          if ends > latest_end then ends, changed = latest_end, true end -- the clock was set back
          while lent + older > 0 and ends - EPOCH <= now do -- the older ones are over: from their end on they are spent
            used = max(used, (ends - EPOCH - now) * fine + (lent + older) * unit)
            older, lent, ends = lent, 0, ends + EPOCH -- older first: the simulation's Lua assigns one by one
          end
          used = max(used, (lent + older) * unit)
        end
        if used < 0 then used = 0 end
        if used > cap + debt * fine then used, changed = cap + debt * fine, true end -- a new limit or clock
      elseif algorithm == LOG then
        used, changed = log.used, log.changed
      else
        -- The window counts `first`, the one before `second`. The key's last ms is the window's; sliding: the next's.
        local length, life = algorithm == CALENDAR and debt - fine or window, before and lives[before]
        ends, tail = now - now % window + window, algorithm == SLIDING and window or 0
        if algorithm == CALENDAR then
          ends = debt + max(ceil((now + 1 - debt) / length), 0) * length
          if now < fine then ends = now < window and window or fine end
        end
        local following = ends + length
        if algorithm == CALENDAR and ends < debt then following = ends < fine and fine or debt end
        local expires = first and ((life or call('PEXPIRETIME', key)) + 1) * 1000 or 0
        if algorithm == SLIDING and expires == ends then
          prev = first -- it counted the window before this one
        elseif expires > now then
          used, prev, expires = first, second, expires - tail
          if expires == ends or expires == following then
            ends, stored = expires, not life -- this window; or the next: the clock was set back, or see below
          else
            changed = true -- another length, or the clock was set back far: the count moves to this window
          end
        end
        if not stored and tail == 0 and ends - now <= 1000 then ends = following end -- else it may be deleted at once
        if prev > 0 then -- it weighs by the part of it that is less than a window ago
          steps = floor(window / fine)
          cap = most - ceil(prev * min(ceil((ends - now) / fine), steps) / steps)
        end
      end

      local rest = 0 -- of its cool-down
      if penalty > 0 then
        cools = cools + 1
        local last = pcall('LINDEX', KEYS[place + charges + cools], -1)
        if type(last) == 'table' then last = foreign(last) end
        rest = max((tonumber(last) or 0) - now, 0)
      end

      -- Decide.
      local left, outcome, tokens, wait = floor((cap - used) / unit), ALLOWED, 0, 0
      local take -- units, where they are not those of whole tokens
      if op == SPEND or op == PEEK then
        if rest > 0 and penalty == 1 then
          outcome = COOLING
        elseif cost <= left then
          tokens = cost
        elseif time > 0 and cost <= most and used - cap + cost * unit <= time * fine then -- throttle: due soon enough
          tokens, wait = cost, ceil((used - cap + cost * unit) / fine)
        else
          outcome = REFUSED
          if each == 1 and left > 0 then tokens = left end
        end
        if op == PEEK then tokens, wait = 0, 0 end
      elseif op == REFUND then
        take = min(cost * unit, used - (lent + older) * unit)
        if time > 0 and algorithm == BUCKET then take = min(take, (time - now - 1) * fine + 1) end -- not back by itself
        if time > 0 and now >= time then take = 0 end
        take = -max(take, 0)
        tokens = floor(take / unit)
      elseif op == DEBIT then
        tokens = max(min(cost, floor((cap + (algorithm == BUCKET and debt * fine or 0) - used) / unit)), 0)
      elseif op == LEND then
        tokens = min(cost, floor(max(left, 0) / time))
        if algorithm == BUCKET and lent + older == 0 then ends = now - now % EPOCH + 2 * EPOCH end
        lent = lent + tokens
        outcome, wait = tokens > 0 and ALLOWED or REFUSED, ends - now
      else -- spent, returned; of a lease that is over all is spent already
        if time == ends then
          tokens = min(cost, lent)
          lent = lent - tokens
        elseif time == ends - EPOCH then
          tokens = min(cost, older)
          older = older - tokens
        end
        changed = changed or tokens > 0
        tokens = op == RETURNED and -tokens or 0
      end
      if again then outcome = (reply[size + 1] - 1) % 3 + 1 end -- it stays as it was
      if dry and each == 0 then tokens, take, wait = 0, 0, 0 end
      take = take or tokens * unit
      used = used + take
      left = floor((cap - used) / unit)
      if mode == ENFORCED and outcome ~= ALLOWED then refused = true end
      if mode == QUOTA then quotas, open = true, open or outcome == ALLOWED end
      if take ~= 0 and each == 0 then taken = true end

      -- When it is full, and when a cost that is refused could pass.
      local reset, retry = 0, 0
      if algorithm == BUCKET then
        local full, owed = used, used
        if lent + older > 0 then -- all of it may be spent at its end; a cost that does not fit beside it waits for that
          local soon, late = (ends - EPOCH - now) * fine + (lent + older) * unit, (ends - now) * fine + lent * unit
          if lent == 0 then late = 0 end
          full = max(used, soon, late)
          if (lent + older + cost) * unit > cap then owed = max(owed, soon) end
          if (lent + cost) * unit > cap then owed = max(owed, late) end
        end
        reset = ceil(full / fine)
        retry = ceil((owed - cap + cost * unit) / fine)
      elseif algorithm == SLIDING then
        if used > 0 then reset = ends + window - now elseif prev > 0 then reset = ends - now end
        if outcome == REFUSED and cost > left and cost <= most - used then -- once the last window weighs little enough
          retry = ends - now - floor((most - used - cost) * steps / prev) * fine
        elseif outcome == REFUSED and cost > left and cost <= most then -- once this one does, in the next
          retry = ends + window - now - min(floor((most - cost) * floor(window / fine) / used) * fine, window)
        end
      elseif algorithm == LOG then
        reset, retry = settle_log(log, used, cost, most, window, now)
      else
        reset, retry = ends - now, ends - now
      end
      if most < 0 and reset == 0 then reset = window end
      if outcome == REFUSED then wait = cost > most and reset or cost > left and retry or 0 end
      if outcome == COOLING then wait = rest end
      if rest > 0 and penalty == 2 then outcome = outcome + 3 end
      reply[size + 1], reply[size + 2], reply[size + 3] = wrong and FOREIGN or outcome, max(left, 0), tokens
      reply[size + 4], reply[size + 5] = reset, wait
      size = size + 5

      -- What the key is to hold, '' for nothing, and until when.
      values[i], adds[i] = false, false
      if take ~= 0 or changed then
        if latest then latest[key] = i end
        lives[i] = floor((now + reset + 999) / 1000)
        if algorithm == LOG then
          values[i] = log
        elseif used == 0 and prev == 0 then
          values[i] = ''
        elseif algorithm == BUCKET then
          local part = used % fine
          local full = now + (used - part) / fine
          values[i] = lent + older > 0 and format('%d %d %d %d %d', full, part, lent, older, ends)
            or part > 0 and format('%d %d', full, part) or format('%d', full)
        else
          lives[i] = not stored and (ends + tail) / 1000 - 1
          values[i] = prev > 0 and format('%d %d', used, prev) or used
          adds[i] = stored and tail == 0 and take -- its time to live is set already
        end
      end
    end

    refused = refused or quotas and not open
    again, dry = refused and taken and not dry, dry or refused and taken
  until not again

  for i = 1, charges do
    local key, value, life, at = KEYS[place + i], values[i], lives[i], start + 5 * i
    if broken then
      reply[at - 4] = reply[at - 4] == FOREIGN and FOREIGN or BESIDE
      reply[at - 3], reply[at - 2], reply[at - 1], reply[at] = 0, 0, 0, 0
    elseif not value then
      -- it stays as it is
    elseif value == '' then
      call('DEL', key)
    elseif type(value) == 'table' then
      if not latest or latest[key] == i then write_log(key, value, format('%d', life)) end
    elseif adds[i] then
      call('INCRBY', key, adds[i])
    elseif life then
      call('SET', key, value, 'PXAT', format('%d', life))
    else
      call('SET', key, value, 'KEEPTTL')
    end
  end
  place = place + charges + cools
end
return reply
