-- Removes notes of blocks that sidecars have changed, where no sidecar has written them anew since they were read.
-- KEYS[1]: the sorted set of the notes. ARGV: each note, and the score that it had.
-- Reply: how many were removed.
local removed = 0
for i = 1, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    removed = removed + redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return removed
