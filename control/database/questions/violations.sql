WITH counted AS (
  SELECT identity, count(*) AS refusals, min(at) AS first, max(at) AS last
  FROM events
  WHERE domain = @domain AND at >= @since AND outcome IN ('refused', 'blocked', 'malformed') AND (@rule = '' OR rule = @rule)
  GROUP BY identity
  ORDER BY refusals DESC, identity
  LIMIT @limit
)
SELECT c.identity, (SELECT u.name FROM users u WHERE u.domain = @domain AND u.identity = c.identity LIMIT 1) AS "user", c.refusals, c.first, c.last
FROM counted c
ORDER BY c.refusals DESC, c.identity
