SELECT at, outcome, rule, method, endpoint, count, count_limit AS "limit", cost, status, retry_after, api_key, ip, region
FROM events
WHERE domain = @domain AND identity = @identity AND at >= @since AND outcome IN ('refused', 'blocked', 'malformed')
ORDER BY at DESC
LIMIT @limit
