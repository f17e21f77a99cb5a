-- Requests of a batch for fixed windows that all have room. What equal arguments say is unpacked once.
-- keys: those of tight.lua. arguments: a plan of the first argument of spend.lua; base; size, how many charges there are; unit of the times
--   to live; states, a table to work in.
-- reply: true, and what each charge got takes the place of its key in KEYS; nothing where tight.lua has to decide, and then nothing is
--   written and KEYS is as it was.

-- Unpacks an argument: of each charge the start of its window, the most that can be counted, its cost and the time to live. Nothing where a
-- charge is of another kind.
local function plan_windows(argument, size, now, from)
  local unpack, format, window, start, life = struct.unpack, string.format, 0, 0, ''
  if string.byte(argument, 9) == 1 then return end
  local plan = {0, 0, 0, '', 0, 0, 0, '', 0, 0, 0, '', 0, 0, 0, ''} -- of four charges from the start it need not grow
  for i = 1, size do
    local algorithm, op, count, length, cost = unpack('>BBxxddxxxxxxxxd', argument, 40 * i - 26)
    if algorithm ~= 3 or op ~= 0 or cost == 0 then return end
    if length ~= window then
      window, start = length, now - now % length
      life = format('%d', (start + window - now + from + 1999) / 1000)
    end
    if count > 4294967295 then count = 4294967295 end
    local k = 4 * i
    plan[k - 3], plan[k - 2], plan[k - 1], plan[k] = start, count, cost, life
  end
  return plan
end

local function windows(plan, base, size, unit, states)
  local keys, call, pack, unpack, k = KEYS, redis.call, struct.pack, struct.unpack, 1
  for i = 1, size do
    local used, start, value = 0, plan[k], call('GET', keys[base + i])
    if value then
      if #value ~= 12 then return end
      local at
      at, used = unpack('>dI4', value)
      if used == 0 then return end
      if at ~= start then
        if not (at >= 0 and at < start and at % 1 == 0) then return end
        used = 0
      end
    end
    used = used + plan[k + 2]
    if used > plan[k + 1] then return end
    states[i] = pack('>dI4', start, used)
    k = k + 4
  end
  for i = 1, size do
    local state = states[i]
    call('SET', keys[base + i], state, unit, plan[4 * i])
    keys[base + i] = state
  end
  return true
end
