SELECT u.name AS "user", u.tier, q.per, q.since, q.quota, used.requests, used.cost, round(100.0 * used.cost / q.quota, 1)::float8 AS percent, used.refused
FROM users u
CROSS JOIN LATERAL (VALUES (1, 'hour', @hour::timestamptz, u.quota_hour), (2, 'day', @day::timestamptz, u.quota_day), (3, 'month', @month::timestamptz, u.quota_month)) AS q (place, per, since, quota)
CROSS JOIN LATERAL (SELECT date_trunc('hour', q.since + interval '59 minutes', 'UTC') AS whole) AS begin -- of the first whole hour
CROSS JOIN LATERAL (
  SELECT coalesce(sum(requests) FILTER (WHERE admitted), 0)::bigint AS requests, coalesce(sum(cost) FILTER (WHERE admitted), 0)::bigint AS cost,
    coalesce(sum(requests) FILTER (WHERE NOT admitted), 0)::bigint AS refused
  FROM (
    SELECT requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') AS admitted FROM usage_hours h
    WHERE h.domain = @domain AND h.identity = @identity AND h.rule = '' AND h.at >= begin.whole
    UNION ALL
    SELECT requests, cost, outcome NOT IN ('refused', 'blocked', 'malformed') FROM usage_minutes m
    WHERE m.domain = @domain AND m.identity = @identity AND m.rule = '' AND m.minute >= q.since AND m.minute < begin.whole
  ) AS parts
) AS used
WHERE u.domain = @domain AND u.name = @user
ORDER BY q.place
