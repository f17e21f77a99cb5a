-- All charges of one request in one step, the twin of spend.go: every state is read and checked before any is written.
-- keys: the distinct keys of the charges.
-- arguments: one string, packed big-endian: now (double, microseconds since the epoch, 0 for the server's own time; only
--   tests give it), refused (byte, 1: the request is refused already), then per charge 40 bytes: index of its key from 1
--   (4 bytes), algorithm, op, mode, each (bytes), count, window in microseconds, burst, cost (doubles).
--   A second string only where a charge has a longest wait, a calendar, a refund an end, or a penalty; penalty.lua describes it.
-- reply: one string, packed big-endian: now (double), then per charge: outcome (byte, 4 more when a state follows, 16 more in
--   a cool-down), remaining, charged, reset and retry in microseconds (doubles; for an allowed charge retry is how long its
--   answer waits), and for a refused charge of any algorithm but the log its state: at, rem, used, prev (doubles).
--
-- Every call that gets here defines every function anew, and each variable it catches costs: hence plain numbers for ops, modes
-- and outcomes (those of limit.go), and functions inside functions for what a call with one charge does not need. The common
-- call does not get here: tight.lua answers it.

-- What a charge gets (1 allowed, 2 refused) and how much it takes when that much is left.
local function demand(c, left)
  local op, cost = c.op, c.cost
  if op == 2 then return 1, -cost end -- refund
  if op == 3 then return 1, max(min(cost, left + c.count), 0) end -- debit
  if cost <= left then return 1, op == 0 and cost or 0 end
  if op == 0 and c.each == 1 then return 2, max(left, 0) end
  return 2, 0
end

-- Decides one charge on its own and takes what it takes, nothing if dry. Returns the outcome, what it took, and how long
-- the answer waits if that was taken in advance.
local function step(t, c, dry, now)
  if c.count == 0 then return c.op < 2 and 2 or 1, 0 end
  local ops = t.ops
  ops.advance(t, c, now)
  local outcome, n = demand(c, ops.left(t, c, now))
  local wait = outcome == 2 and c.max_wait and ops.due(t, c, c.cost, c.max_wait, now)
  if wait then outcome, n = 1, c.op == 0 and c.cost or 0 end -- a peek takes nothing, and its answer does not wait
  if dry or n == 0 then return outcome, 0 end
  n = ops.take(t, c, n, now)
  if n ~= 0 then t.changed = true end
  return outcome, n, wait
end

-- What is left after the request, packed after the head. Remembers in the state when it is full again.
local function report(head, t, c, outcome, charged, now, wait)
  local ops, remaining, reset, retry, said, penalty = t.ops, 0, c.window, c.window, outcome, c.penalty
  if c.count > 0 then
    ops.advance(t, c, now)
    remaining = max(ops.left(t, c, now), 0)
    reset = ops.reset(t, c, now)
    t.reset = reset
    if outcome == 2 then retry = ops.wait(t, c, c.cost, now) end
  elseif c.algorithm == 3 then -- until the window ends
    local empty = {at = 0, used = 0}
    ops.advance(empty, c, now)
    reset = ops.reset(empty, c, now)
    retry = reset
  end
  if penalty then
    if penalty.rest then said = said + 16 end
    if not penalty.dry then retry = penalty.rest or max(retry, penalty.started or 0) end
  end
  if outcome == 1 then return pack('>dBdddd', head, said, remaining, charged, reset, wait or 0) end
  if t.size then return pack('>dBdddd', head, said, remaining, charged, reset, retry) end
  if t.lent then ops.freeze(t) end
  return pack('>dBdddddddd', head, said + 4, remaining, charged, reset, retry, t.at, t.rem or 0, t.used, t.prev or 0)
end

-- Writes a changed state, and its time to live in the same step.
local function save(key, t, now, given)
  if not t.changed then return end
  if given then
    t.ops.write(key, t, 'PXAT', ceiling(now + t.reset, 1000) + 1)
  else
    t.ops.write(key, t, 'PX', ceiling(t.reset, 1000) + 1)
  end
end

local made = {}

local function read(key, algorithm)
  local ops = made[algorithm]
  if not ops then
    if algorithm == 1 then
      ops = token_bucket()
    elseif algorithm == 2 then
      ops = sliding_window()
    elseif algorithm == 3 then
      ops = fixed_window()
    else
      ops = sliding_log()
    end
    made[algorithm] = ops
  end
  local t = ops.read(key)
  t.ops = ops
  return t
end

-- A request of several charges, or with longest waits or penalties.
local function decide_all(charges, refused, now, given)
  local states, outcomes, charged, waits, replies = {}, {}, {}, {}, {pack('>d', now)}
  local more = ARGV[2] and extras(ARGV[2], charges, now, given)

  local function read_all()
    for i = 1, #KEYS do states[i] = nil end
    for i = 1, #charges do
      local c = charges[i]
      local t = states[c.key]
      if not t then
        t = read(KEYS[c.key], c.algorithm)
        t.algorithm = c.algorithm
        states[c.key] = t
      elseif t.algorithm ~= c.algorithm then
        error('key ' .. KEYS[c.key] .. ' is charged by two algorithms in one request')
      end
    end
  end

  -- Whether the request is refused: by any enforced charge, or by all its quotas together.
  local function refuses()
    local quotas, open = false, false
    for i = 1, #charges do
      local mode = charges[i].mode
      if mode == 0 and outcomes[i] == 2 then return true end
      if mode == 2 then
        quotas = true
        open = open or outcomes[i] == 1
      end
    end
    return quotas and not open
  end

  -- Decides one charge. One that a cool-down refuses does not get to its counter.
  local function try(c, dry)
    if c.cooling then return 2, 0 end
    return step(states[c.key], c, dry, now)
  end

  -- Tries all charges one after the other. If that refuses the request it starts again, and only charges with each take;
  -- what each limit said stays. A single charge that refuses has taken what it takes.
  read_all()
  for i = 1, #charges do
    outcomes[i], charged[i], waits[i] = try(charges[i], false)
  end
  if refused or #charges > 1 and refuses() then
    read_all()
    for i = 1, #charges do
      local c, _ = charges[i], nil
      _, charged[i], waits[i] = try(c, c.each == 0)
    end
  end
  if more then more.count(outcomes) end
  for i = 1, #charges do
    local c = charges[i]
    replies[i + 1] = string.sub(report(now, states[c.key], c, outcomes[i], charged[i], now, waits[i]), 9)
  end
  for i = 1, #KEYS do
    if states[i] then save(KEYS[i], states[i], now, given) end
  end
  if more then more.save() end
  return table.concat(replies)
end

local argument = ARGV[1]
local charges = {}
local now, refused = unpack_struct('>dB', argument)
for i = 10, #argument, 40 do
  local key, algorithm, op, mode, each, count, window, burst, cost = unpack_struct('>I4BBBBdddd', argument, i)
  charges[#charges + 1] = {key = key, algorithm = algorithm, op = op, mode = mode, each = each, count = count,
    window = window, burst = burst, cost = cost}
end
refused = refused == 1
local given = now > 0
if not given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if #charges ~= 1 or ARGV[2] then return decide_all(charges, refused, now, given) end

local c, key = charges[1], KEYS[1]
local t = read(key, c.algorithm)
local outcome, charged = step(t, c, refused and c.each == 0, now)
local reply = report(now, t, c, outcome, charged, now)
save(key, t, now, given)
return reply
