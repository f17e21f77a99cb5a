SELECT method, endpoint, count(*) AS refusals, min(at) AS first, max(at) AS last
FROM events
WHERE domain = @domain AND at >= @since AND outcome IN ('refused', 'blocked', 'malformed')
GROUP BY method, endpoint
ORDER BY refusals DESC, endpoint, method
LIMIT @limit
