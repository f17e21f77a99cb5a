-- Requests of a batch for fixed windows that all have room. What equal arguments say is unpacked once.
-- keys: those of tight.lua. arguments: a plan of the first argument of spend.lua; base; size, how many charges there are; unit of the times
--   to live; work, a table to work in.
-- reply: true, and the count of each charge (4 bytes) takes the place of its key in KEYS, the first with the byte 16 in front; nothing where
--   tight.lua has to decide, and then nothing is written and KEYS is as it was.
--
-- A window that is there and marked (see fixed_window.lua) has its time to live, so its count is changed in place. These come first: a server
-- whose user may not SETRANGE refuses before anything is written, and tight.lua decides.

-- Unpacks an argument: of each charge the start of its window, the most that can be counted, its cost, the time to live, the start as it is
-- kept, and whether that is marked. Nothing where a charge is of another kind.
local function plan_windows(argument, size, now, from)
  local pack, unpack, format, window, start, life, head, marked = struct.pack, struct.unpack, string.format, 0, 0, '', '', false
  if string.byte(argument, 9) == 1 then return end
  local plan = {0, 0, 0, '', '', false, 0, 0, 0, '', '', false, 0, 0, 0, '', '', false, 0, 0, 0, '', '', false} -- of four it need not grow
  for i = 1, size do
    local algorithm, op, count, length, cost = unpack('>BBxxddxxxxxxxxd', argument, 40 * i - 26)
    if algorithm ~= 3 or op ~= 0 or cost == 0 then return end
    if length ~= window then
      window, start = length, now - now % length
      life = format('%d', (start + window - now + from + 1999) / 1000)
      marked = window % 1000000 == 0 and window <= 432000000000
      head = pack('>d', marked and start + window / 500000 + 1 or start)
    end
    if count > 4294967295 then count = 4294967295 end
    local k = 6 * i
    plan[k - 5], plan[k - 4], plan[k - 3], plan[k - 2], plan[k - 1], plan[k] = start, count, cost, life, head, marked
  end
  return plan
end

local function windows(plan, base, size, unit, work)
  local keys, call, pack, unpack, byte, sub, k = KEYS, redis.call, struct.pack, struct.unpack, string.byte, string.sub, 1
  for i = 1, size do
    local used, there, value = 0, false, call('GET', keys[base + i])
    if value then
      if #value ~= 12 then return end
      local b1, b2, b3, b4 = byte(value, 9, 12)
      used = ((b1 * 256 + b2) * 256 + b3) * 256 + b4
      if used == 0 then return end
      if sub(value, 1, 8) == plan[k + 4] then
        there = plan[k + 5]
      else
        local at, start = unpack('>d', value), plan[k]
        if at ~= start then
          if not (at >= 0 and at < start and at % 1 == 0) then return end
          used = 0
        end
      end
    end
    used = used + plan[k + 2]
    if used > plan[k + 1] then return end
    work[i], work[size + i] = pack('>I4', used), there
    k = k + 6
  end
  for i = 1, size do
    if work[size + i] then call('SETRANGE', keys[base + i], '8', work[i]) end -- '8', because numbers are formatted at a price
  end
  for i = 1, size do
    if not work[size + i] then call('SET', keys[base + i], plan[6 * i - 1] .. work[i], unit, plan[6 * i - 2]) end
    keys[base + i] = work[i]
  end
  keys[base + 1] = '\16' .. work[1]
  return true
end
