SELECT endpoint, coalesce(sum(requests) FILTER (WHERE admitted), 0)::bigint AS admitted, coalesce(sum(cost) FILTER (WHERE admitted), 0)::bigint AS cost,
  coalesce(sum(requests) FILTER (WHERE NOT admitted), 0)::bigint AS refused, max(at) AS last_hour
FROM (
  SELECT endpoint, at, requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') AS admitted FROM call_hours
  WHERE domain = @domain AND identity = @identity AND at >= date_trunc('hour', @since::timestamptz, 'UTC')
) AS called
GROUP BY endpoint
ORDER BY sum(requests) DESC, endpoint
LIMIT @limit
