-- How the states of the token bucket and of both windows are kept. The sliding log and the penalty keep their own.
-- keys: one string, big-endian: at (double), used (4 bytes) and, unless it is 0, a third number (4 bytes): rem of a bucket,
--   prev of a window. 12 bytes are what an object of Redis holds in 32 with its own. Three doubles where 4 bytes are too few.
-- arguments: key; the numbers; expires (see spend.lua). reply: read returns the numbers, zeros where there is no key.

local function foreign()
  error('a key holds a value that no limit wrote; delete it or use another key prefix')
end

local function whole(number)
  return number >= 0 and number < max_exact and fmod(number, 1) == 0
end

local function read_numbers(key)
  local value = redis.call('GET', key)
  if not value then return 0, 0, 0 end
  local length, at, used, third = #value, nil, nil, 0
  if length == 12 then
    at, used = unpack_struct('>dI4', value)
  elseif length == 16 then
    at, used, third = unpack_struct('>dI4I4', value)
  elseif length == 24 then
    at, used, third = unpack_struct('>ddd', value)
    if not (whole(used) and whole(third)) then foreign() end
  else
    foreign()
  end
  if not whole(at) or used == 0 and third == 0 then foreign() end
  return at, used, third
end

local function write_numbers(key, at, used, third, unit, expires)
  local value
  if used >= 4294967296 or third >= 4294967296 then
    value = pack('>ddd', at, used, third)
  elseif third > 0 then
    value = pack('>dI4I4', at, used, third)
  elseif used > 0 then
    value = pack('>dI4', at, used)
  else
    redis.call('DEL', key)
    return
  end
  redis.call('SET', key, value, unit, expires)
end
