-- Longest waits, calendars and penalties, the twin of penalty.go. Only a call that has a second argument builds this.
-- keys: one string per penalty: the number of cool-downs (byte), when they end or ended, then the instants of refusals that
--   count towards the next one (big-endian doubles, microseconds since the epoch, oldest first).
-- arguments: one string, packed big-endian: per charge that has one of these, its number from 1 (4 bytes), its longest wait in
--   microseconds, or for a refund its end (double, 0: none), the index of its penalty's key from 1 (4 bytes, 0: none), the number of its
--   calendar's edges (byte), and the edges (doubles, microseconds since the epoch); and, with a penalty, whether it only shows (byte),
--   threshold, window (doubles), the number of cool-downs (byte), and the cool-downs, multiplied (doubles).
-- reply: each charge has max_wait, less cost, edges or penalty then; count records the refusals, save writes the records that changed.

local function extras(argument, charges, now, given)
  local records = {}

  -- Bytes of a stored value, counted from 0. A long one is not read as a whole: there may be a thousand refusals.
  local function bytes(r, from, to)
    if r.text then return string.sub(r.text, from + 1, to + 1) end
    return redis.call('GETRANGE', r.key, from, to)
  end

  local function instant(r, index)
    return (unpack_struct('>d', bytes(r, 8 * index + 1, 8 * index + 8)))
  end

  -- A record: ends, and the stored refusals from number first on, or moved ones in their place, then an added one.
  local function read_record(key)
    local r = {key = key, ends = {}, stored = 0, first = 0, count = 0, oldest = 0, newest = 0}
    local text = redis.call('GETRANGE', key, 0, 136)
    local length, last = #text, 0
    if length == 0 then return r end
    if length == 137 then length = redis.call('STRLEN', key) else r.text = text end
    r.length, r.stored = length, string.byte(text)
    r.count = (length - 1) / 8 - r.stored
    if length < 9 or fmod(length, 8) ~= 1 or r.stored > 16 or r.count < 0 then foreign() end
    for i = 1, r.stored do
      local at = unpack_struct('>d', text, 8 * i - 6)
      if not whole(at) or at < last then foreign() end
      r.ends[i], last = at, at
    end
    if r.count > 0 then
      r.oldest, r.newest = instant(r, r.stored), instant(r, r.stored + r.count - 1)
      if not (whole(r.oldest) and whole(r.newest) and r.oldest <= r.newest) then foreign() end
    end
    return r
  end

  -- How many refusals are not after the edge.
  local function before(r, edge)
    if r.count == 0 or r.oldest > edge then return 0 end
    local low, high = 1, r.count
    while low < high do
      local middle = divide(low + high, 2)
      if instant(r, r.stored + middle) > edge then high = middle else low = middle + 1 end
    end
    return low
  end

  -- How long the cool-down still lasts, nil if none runs. What lies further ahead than this penalty can reach is moved.
  local function rest(r, p)
    local ends, limit = r.ends, now + p.longest
    local last = ends[#ends] or 0
    if last > limit then
      for i = 1, #ends do ends[i] = min(ends[i], limit) end
      last, r.rewrite = limit, true
    end
    if r.newest > now + p.window then
      r.count = r.count - before(r, r.newest - p.window)
      r.moved, r.oldest, r.newest, r.rewrite = string.rep(pack('>d', now), r.count), now, now, true
    end
    r.window = p.window
    if last > now then return last - now end
  end

  -- Records a refusal and returns the length of the cool-down that it starts, 0 if it starts none.
  local function refuse(r, p)
    local ends, at = r.ends, max(now, r.newest)
    local edge = at - p.window
    r.first = before(r, edge)
    r.added, r.newest = pack('>d', at), at
    while ends[1] and ends[1] <= edge do table.remove(ends, 1) end
    if r.count - r.first + 1 < p.threshold then return 0 end
    local length = p.lengths[min(#ends + 1, #p.lengths)]
    while #ends >= #p.lengths do table.remove(ends, 1) end
    ends[#ends + 1] = now + length
    r.moved, r.added, r.newest, r.rewrite = '', '', 0, true
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

  local function write(r, unit, expires)
    if r.length and not (r.text or r.rewrite) and r.first == 0 and #r.ends == r.stored then
      redis.call('APPEND', r.key, r.added)
      redis.call(unit == 'PX' and 'PEXPIRE' or 'PEXPIREAT', r.key, expires)
      return
    end
    local parts = {string.char(#r.ends)}
    for i = 1, #r.ends do parts[i + 1] = pack('>d', r.ends[i]) end
    parts[#parts + 1] = r.moved or r.length and bytes(r, 8 * (r.stored + r.first) + 1, r.length - 1)
    parts[#parts + 1] = r.added
    redis.call('SET', r.key, table.concat(parts), unit, expires)
  end

  local function save_records()
    for _, r in pairs(records) do
      if r.added or r.rewrite then
        local ends = max(r.ends[#r.ends] or 0, r.newest) + r.window
        if given then
          write(r, 'PXAT', ceiling(ends, 1000) + 1)
        else
          write(r, 'PX', ceiling(ends - now, 1000) + 1)
        end
      end
    end
  end

  -- How much a refund can give back at most until its end; see spend.go.
  local function returnable(c, ends)
    if now > ends then return 0 end
    if c.algorithm ~= 1 or c.count == 0 then return max_exact end
    local tokens, part = share(ends - now, c.count, c.window)
    return part > 0 and tokens + 1 or tokens
  end

  local place = 1
  while place <= #argument do
    local number, wait, key, edges = unpack_struct('>I4dI4B', argument, place)
    local c = charges[number]
    place = place + 17
    if edges > 0 then c.edges = {} end
    for i = 1, edges do
      c.edges[i] = unpack_struct('>d', argument, place)
      place = place + 8
    end
    if c.op == 2 and wait > 0 then
      c.cost = min(c.cost, returnable(c, wait))
    elseif wait > 0 then
      c.max_wait = wait
    end
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
