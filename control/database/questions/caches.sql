SELECT cache, sum(hits)::bigint AS hits, sum(misses)::bigint AS misses, round(100.0 * sum(hits) / nullif(sum(hits) + sum(misses), 0), 1)::float8 AS percent
FROM cache_hours
WHERE domain = @domain AND at >= date_trunc('hour', @since::timestamptz, 'UTC')
GROUP BY cache
ORDER BY cache
LIMIT @limit
