SELECT u.name AS "user", u.tier, q.per, q.since, q.quota, used.cost AS used, round(100.0 * used.cost / q.quota, 1)::float8 AS percent, used.refused, u.last_request_at
FROM users u
CROSS JOIN LATERAL (VALUES ('hour', @hour::timestamptz, u.quota_hour), ('day', @day::timestamptz, u.quota_day), ('month', @month::timestamptz, u.quota_month)) AS q (per, since, quota)
CROSS JOIN LATERAL (SELECT date_trunc('hour', q.since + interval '59 minutes', 'UTC') AS hour, date_trunc('day', q.since + interval '1439 minutes', 'UTC') AS day) AS whole -- the first whole ones
CROSS JOIN LATERAL (
  SELECT coalesce(sum(cost) FILTER (WHERE admitted), 0)::bigint AS cost, coalesce(sum(requests) FILTER (WHERE NOT admitted), 0)::bigint AS refused
  FROM (
    SELECT requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') AS admitted FROM usage_days d
    WHERE d.domain = @domain AND d.identity = u.identity AND d.rule = '' AND d.at >= whole.day
    UNION ALL
    SELECT requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') FROM usage_hours h
    WHERE h.domain = @domain AND h.identity = u.identity AND h.rule = '' AND h.at >= whole.hour AND h.at < whole.day
    UNION ALL
    SELECT requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') FROM usage_minutes m
    WHERE m.domain = @domain AND m.identity = u.identity AND m.rule = '' AND m.minute >= q.since AND m.minute < whole.hour
  ) AS parts
) AS used
WHERE u.domain = @domain AND coalesce(u.last_request_at, '-infinity') >= least(@hour::timestamptz, @month::timestamptz) AND q.quota IS NOT NULL
ORDER BY percent DESC, u.name, q.quota
LIMIT @limit
