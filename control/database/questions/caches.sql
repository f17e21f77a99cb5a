SELECT cache, CASE domain WHEN '' THEN '(all)' ELSE domain END AS of_domain, sum(hits)::bigint AS hits, sum(misses)::bigint AS misses, round(100.0 * sum(hits) / nullif(sum(hits) + sum(misses), 0), 1)::float8 AS percent
FROM cache_hours
WHERE domain IN (@domain, '') AND at >= date_trunc('hour', @since::timestamptz, 'UTC')
GROUP BY cache, domain
ORDER BY cache, domain
LIMIT @limit
