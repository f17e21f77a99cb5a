SELECT identity, coalesce(sum(requests) FILTER (WHERE admitted), 0)::bigint AS admitted, coalesce(sum(cost) FILTER (WHERE admitted), 0)::bigint AS cost,
  coalesce(sum(requests) FILTER (WHERE NOT admitted), 0)::bigint AS refused
FROM (
  SELECT identity, requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') AS admitted FROM tenant_hours
  WHERE domain = @domain AND rule = '' AND at >= date_trunc('hour', @since::timestamptz, 'UTC') AND at < date_trunc('day', @since::timestamptz + interval '1 day', 'UTC')
  UNION ALL
  SELECT identity, requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') FROM tenant_days
  WHERE domain = @domain AND rule = '' AND at >= date_trunc('day', @since::timestamptz + interval '1 day', 'UTC')
) AS used
GROUP BY identity
ORDER BY cost DESC, identity
LIMIT @limit
