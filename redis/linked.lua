-- Is written in front of a script for a replica. It lets a replica refuse that lost its master, because its counts are as
-- old as that, and a server that is a master now.
if not string.find(redis.call('INFO', 'replication'), 'master_link_status:up', 1, true) then
  return redis.error_reply('MASTERDOWN the replica lacks a link to its master')
end
