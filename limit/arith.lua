-- Integer arithmetic on doubles, the twin of arith.go. Every value and every intermediate is an integer below 2^53.
-- keys: none; arguments: none; reply: none. Concatenated in front of the other files.

local fmod, min, max = math.fmod, math.min, math.max
local pack, unpack_struct = struct.pack, struct.unpack
local max_exact = 9007199254740992

-- x / y and what is left over. fmod is exact where floor(x / y) can be one too high.
local function divide(x, y)
  local rest = fmod(x, y)
  return (x - rest) / y, rest
end

-- x / y rounded up.
local function ceiling(x, y)
  local rest = fmod(x, y)
  if rest == 0 then return x / y end
  return (x - rest) / y + 1
end

-- a * b / c and what is left over, exactly. A product beyond 2^53 is taken digit by digit of a, in the largest base that
-- keeps rest * base + digit * b below 2^53; b and c up to ten years of microseconds leave a base of 14.
local function share(a, b, c)
  if a <= max_exact / b then return divide(a * b, c) end
  local base = max_exact / (b + c)
  base = base - fmod(base, 1)
  local high, digit = divide(a, base)
  local quotient, rest = share(high, b, c)
  local more
  more, rest = divide(rest * base + digit * b, c)
  quotient = quotient * base + more
  if quotient >= max_exact then return max_exact, 0 end
  return quotient, rest
end
