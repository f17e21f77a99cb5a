-- Keeps the cards of sidecars in one hash. A card stands behind the instant at which it ends, in ms, and a blank.
-- KEYS[1]: the cards. ARGV[1]: name of a sidecar, ARGV[2]: its card, ARGV[3]: how long it is shown, in ms; without them cards are read only.
-- What is not a card is removed, and so is one that ends more than a minute from now.
-- Reply: names and cards, one after the other, of sidecars that live.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[1] then
  local new = redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now + ARGV[3]) .. ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  if new == 0 then return 1 end -- each new sidecar takes away the cards of the dead, also if there is no reader
end
local live = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local ends, card = string.match(all[i + 1], '^(%d+) (.*)$')
  ends = tonumber(ends)
  if ends and ends > now and ends <= now + 60000 then
    live[#live + 1] = all[i]
    live[#live + 1] = card
  else
    redis.call('HDEL', KEYS[1], all[i])
  end
end
return live
