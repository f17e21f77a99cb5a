-- All charges of one request in one step, the twin of spend.go: every state is read and checked before any is written.
-- keys: the distinct keys of the charges.
-- arguments: one string, packed big-endian: now (double, microseconds since the epoch, 0 for the server's own time; only
--   tests give it), refused (byte, 1: the request is refused already), then per charge 40 bytes: index of its key from 1
--   (4 bytes), algorithm, op, mode, each (bytes), count, window in microseconds, burst, cost (doubles).
-- reply: one string, packed big-endian: now (double), then per charge: outcome (byte, 4 more when a state follows),
--   remaining, charged, reset and retry in microseconds (doubles), and for a refused charge of any algorithm but the log its
--   state: at, rem, used, prev (doubles).

local makers = {token_bucket, sliding_window, fixed_window, sliding_log}
local SPEND, PEEK, REFUND, DEBIT = 0, 1, 2, 3
local ENFORCED, SHADOW, QUOTA = 0, 1, 2
local ALLOWED, REFUSED, STATE = 1, 2, 4

-- What a charge gets and how much it takes when that much is left.
local function demand(c, left)
  local op, cost = c.op, c.cost
  if op == REFUND then return ALLOWED, -cost end
  if op == DEBIT then return ALLOWED, max(min(cost, left + c.limit.count), 0) end
  if cost <= left then return ALLOWED, op == SPEND and cost or 0 end
  if op == SPEND and c.each then return REFUSED, max(left, 0) end
  return REFUSED, 0
end

-- Decides one charge on its own and takes what it takes, nothing if dry.
local function step(t, c, dry, now)
  local limit, ops = c.limit, c.ops
  c.charged = 0
  if limit.count == 0 then return (c.op == SPEND or c.op == PEEK) and REFUSED or ALLOWED end
  ops.advance(t, limit, now)
  local outcome, n = demand(c, ops.left(t, limit, now))
  if not dry and n ~= 0 then
    c.charged = ops.take(t, limit, n, now)
    if c.charged ~= 0 then t.changed = true end
  end
  return outcome
end

-- What is left after the request, packed; remembers when the state is full again.
local function report(t, c, now)
  local limit, ops, outcome = c.limit, c.ops, c.outcome
  local remaining, reset, retry = 0, limit.window, 0
  if outcome == REFUSED then retry = limit.window end
  if limit.count > 0 then
    ops.advance(t, limit, now)
    remaining = max(ops.left(t, limit, now), 0)
    reset = ops.reset(t, limit, now)
    if outcome == REFUSED then retry = ops.wait(t, limit, c.cost, now) end
    t.reset = reset
  end
  if outcome == REFUSED and not t.size then
    return pack('>Bdddddddd', REFUSED + STATE, remaining, c.charged, reset, retry, t.at, t.rem or 0, t.used, t.prev or 0)
  end
  return pack('>Bdddd', outcome, remaining, c.charged, reset, retry)
end

-- Writes a changed state with its time to live in the same step.
local function save(key, t, ops, now, given)
  if not t.changed then return end
  if given then
    ops.write(key, t, 'PXAT', ceiling(now + t.reset, 1000) + 1)
  else
    ops.write(key, t, 'PX', ceiling(t.reset, 1000) + 1)
  end
end

local function copy(t)
  local other = {}
  for name, value in pairs(t) do other[name] = value end
  return other
end

-- Whether the request is refused: by any enforced charge, or by all its quotas together.
local function refuses(charges)
  local quotas, open = false, false
  for i = 1, #charges do
    local refused, mode = charges[i].outcome == REFUSED, charges[i].mode
    if refused and mode == ENFORCED then return true end
    if mode == QUOTA then
      quotas = true
      open = open or not refused
    end
  end
  return quotas and not open
end

-- Tries all charges one after the other. If that refuses the request it starts again, and only charges with each take;
-- what each limit said stays.
local function decide_all(charges, states, refused, now, given, reply)
  local tallies = {}
  for k, t in pairs(states) do tallies[k] = copy(t) end
  for i = 1, #charges do
    local c = charges[i]
    c.outcome = step(tallies[c.key], c, false, now)
  end
  if refused or refuses(charges) then
    tallies = states
    for i = 1, #charges do
      local c = charges[i]
      step(tallies[c.key], c, not c.each, now)
    end
  end
  local last = {}
  for i = 1, #charges do
    local c = charges[i]
    reply[i + 1] = report(tallies[c.key], c, now)
    last[c.key] = c
  end
  for k, t in pairs(tallies) do save(KEYS[k], t, last[k].ops, now, given) end
end

local argument = ARGV[1]
local now, refused = unpack_struct('>dB', argument)
local given = now > 0
if not given then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
refused = refused == 1

local made, states, charges = {}, {}, {}
local position = 10
while position <= #argument do
  local key, algorithm, op, mode, each, count, window, burst, cost = unpack_struct('>I4BBBBdddd', argument, position)
  position = position + 40
  local ops = made[algorithm]
  if not ops then
    ops = makers[algorithm]()
    made[algorithm] = ops
  end
  if not states[key] then
    local t = ops.read(KEYS[key])
    t.algorithm = algorithm
    states[key] = t
  elseif states[key].algorithm ~= algorithm then
    error('key ' .. KEYS[key] .. ' is charged by two algorithms in one request')
  end
  charges[#charges + 1] = {key = key, ops = ops, op = op, mode = mode, each = each == 1, cost = cost,
    limit = {count = count, window = window, burst = burst}}
end

local reply = {pack('>d', now)}
if #charges == 1 then
  local c, t = charges[1], states[1]
  c.outcome = step(t, c, refused and not c.each, now)
  reply[2] = report(t, c, now)
  save(KEYS[1], t, c.ops, now, given)
else
  decide_all(charges, states, refused, now, given, reply)
end
return table.concat(reply)
