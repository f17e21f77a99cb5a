-- Requests of fixed windows that all admit, the most common ones of a batch: what their arguments say is unpacked once, and the values
-- are read by one command.
-- keys: those of tight.lua. arguments: a plan of the first argument of spend.lua; base.
-- reply: that of tight.lua; nothing where it has to decide, and then nothing is written and KEYS is as it was.

-- Unpacks an argument: per charge its window's start, count, cost and time to live. Nothing where a charge is of another kind.
local function plan_windows(argument, now)
  local given, refused = struct.unpack('>dB', argument)
  if refused == 1 then return end
  local plan = {false, false, false, false, now = now, unit = 'PX', states = {'', '', '', ''}}
  if given > 0 then plan.unit = 'PXAT' end
  for i = 1, (#argument - 9) / 40 do
    local algorithm, op, _, _, count, window, _, cost = struct.unpack('>BBBBdddd', argument, 40 * i - 26)
    if algorithm ~= 3 or op ~= 0 or cost == 0 then return end
    local start = now - now % window
    plan[i] = {start, count, cost, string.format('%d', (start + window - now + given + 1999) / 1000)}
    plan.size = i
  end
  return plan
end

local function windows(plan, base)
  local keys, size, states, values = KEYS, plan.size, plan.states, nil
  local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
  if size > 1 then values = call('MGET', unpack(keys, base + 1, base + size)) end
  for i = 1, size do
    local c, used, value = plan[i], 0, values and values[i]
    local start = c[1]
    value = value or call('GET', keys[base + i]) -- MGET returns nothing for a key of another type, which has to be an error
    if value then
      if #value ~= 12 then return end
      local at
      at, used = unpack_struct('>dI4', value)
      if used == 0 or at > start or at < 0 or at % 1 ~= 0 then return end
      if at < start then used = 0 end
    end
    used = used + c[3]
    if used > c[2] or used >= 4294967296 then return end
    states[i] = pack('>dI4', start, used)
  end
  local unit = plan.unit
  for i = 1, size do
    call('SET', keys[base + i], states[i], unit, plan[i][4])
    keys[base + i] = states[i]
  end
  return plan.now
end
