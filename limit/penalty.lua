-- Longest waits and penalties, the twin of penalty.go. Only a call that has a second argument builds this.
-- keys: one string per penalty: the number of cool-downs (byte), when they end or ended, then the instants of refusals that
--   count towards the next one (big-endian doubles, microseconds since the epoch, oldest first).
-- arguments: one string, packed big-endian: per charge that has either, its number from 1 (4 bytes), its longest wait in
--   microseconds (double, 0: none), the index of its penalty's key from 1 (4 bytes, 0: none); and, with a penalty, whether it
--   only shows (byte), threshold, window (doubles), and as many cool-downs, multiplied (doubles), as the byte before says.
-- reply: each charge has max_wait or penalty then; count records the refusals, save writes the records that changed.

local function extras(argument, charges, now, given)
  local records = {}

  local function instants_from(key, value, place, n)
    local instants, last = {}, 0
    for i = 1, n do
      local at = unpack_struct('>d', value, place + 8 * i - 8)
      if not whole(at) or at < last then foreign(key) end
      instants[i], last = at, at
    end
    return instants
  end

  -- Refusals stay packed: there may be a thousand of them, and few are looked at.
  local function read_record(key)
    local value = redis.call('GET', key)
    if not value then return {ends = {}, refusals = '', newest = 0} end
    local n, length = string.byte(value), #value
    if length < 9 or fmod(length, 8) ~= 1 or n > 16 or 8 * n + 1 > length then foreign(key) end
    local r = {ends = instants_from(key, value, 2, n), refusals = string.sub(value, 8 * n + 2), newest = 0}
    if r.refusals ~= '' then
      local oldest = unpack_struct('>d', r.refusals)
      r.newest = unpack_struct('>d', r.refusals, #r.refusals - 7)
      if not (whole(oldest) and whole(r.newest) and oldest <= r.newest) then foreign(key) end
    end
    return r
  end

  -- How many refusals are not after the edge.
  local function before(refusals, edge)
    local low, high = 0, #refusals / 8
    while low < high do
      local middle = divide(low + high, 2)
      if unpack_struct('>d', refusals, 8 * middle + 1) > edge then high = middle else low = middle + 1 end
    end
    return low
  end

  -- How long the cool-down still lasts, nil if none runs. What lies further ahead than this penalty can reach is moved.
  local function rest(r, p)
    local ends, limit = r.ends, now + p.longest
    local last = ends[#ends] or 0
    if last > limit then
      for i = 1, #ends do ends[i] = min(ends[i], limit) end
      last, r.changed = limit, true
    end
    if r.newest > now + p.window then
      local kept = #r.refusals / 8 - before(r.refusals, r.newest - p.window)
      r.refusals, r.newest, r.changed = string.rep(pack('>d', now), kept), now, true
    end
    r.window = p.window
    if last > now then return last - now end
  end

  -- Records a refusal and returns the length of the cool-down that it starts, 0 if it starts none.
  local function refuse(r, p)
    local ends, at = r.ends, max(now, r.newest)
    local edge = at - p.window
    r.refusals = string.sub(r.refusals, 8 * before(r.refusals, edge) + 1) .. pack('>d', at)
    r.newest, r.changed = at, true
    while ends[1] and ends[1] <= edge do table.remove(ends, 1) end
    if #r.refusals / 8 < p.threshold then return 0 end
    local length = p.lengths[min(#ends + 1, #p.lengths)]
    while #ends >= #p.lengths do table.remove(ends, 1) end
    ends[#ends + 1] = now + length
    r.refusals, r.newest = '', 0
    return length
  end

  local function count(outcomes)
    for i = 1, #charges do
      local c = charges[i]
      local p = c.penalty
      if p and not p.rest and c.op == 0 and outcomes[i] == 2 then
        local r = records[p.key]
        if not r.started then r.started = refuse(r, p) end -- once per request, however many limits of the rule refuse
        p.started = r.started
      end
    end
  end

  local function save_records()
    for key, r in pairs(records) do
      if r.changed then
        local parts = {string.char(#r.ends)}
        for i = 1, #r.ends do parts[i + 1] = pack('>d', r.ends[i]) end
        parts[#parts + 1] = r.refusals
        local expires = max(r.ends[#r.ends] or 0, r.newest) + r.window
        if given then
          redis.call('SET', KEYS[key], table.concat(parts), 'PXAT', ceiling(expires, 1000) + 1)
        else
          redis.call('SET', KEYS[key], table.concat(parts), 'PX', ceiling(expires - now, 1000) + 1)
        end
      end
    end
  end

  local place = 1
  while place <= #argument do
    local number, wait, key = unpack_struct('>I4dI4', argument, place)
    local c = charges[number]
    place = place + 16
    if wait > 0 then c.max_wait = wait end
    if key > 0 then
      local dry, threshold, window, n = unpack_struct('>BddB', argument, place)
      local p = {key = key, dry = dry == 1, threshold = threshold, window = window, lengths = {}, longest = 0}
      for i = 1, n do
        p.lengths[i] = unpack_struct('>d', argument, place + 10 + 8 * i)
        p.longest = max(p.longest, p.lengths[i])
      end
      place = place + 18 + 8 * n
      local r = records[key] or read_record(KEYS[key])
      records[key], c.penalty = r, p
      p.rest = rest(r, p)
      c.cooling = p.rest and not p.dry
    end
  end
  for i = 1, #charges do
    if records[charges[i].key] then error('key ' .. KEYS[charges[i].key] .. ' is both a counter and a penalty') end
  end
  return {count = count, save = save_records}
end
