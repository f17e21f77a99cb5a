WITH kept AS (
  SELECT rule, requests, latencies FROM endpoint_hours
  WHERE domain = @domain AND at >= date_trunc('hour', @since::timestamptz, 'UTC') AND at < date_trunc('day', @since::timestamptz + interval '1 day', 'UTC')
  UNION ALL
  SELECT rule, requests, latencies FROM endpoint_days
  WHERE domain = @domain AND at >= date_trunc('day', @since::timestamptz + interval '1 day', 'UTC')
), buckets AS (
  SELECT rule, i, sum(n)::bigint AS n FROM kept, unnest(latencies) WITH ORDINALITY AS b (n, i) GROUP BY rule, i
), sketches AS (
  SELECT rule, array_agg(n ORDER BY i) AS latencies FROM buckets GROUP BY rule
), counted AS (
  SELECT rule, sum(requests)::bigint AS requests FROM kept GROUP BY rule
)
SELECT rule, c.requests, latency_quantile(s.latencies, 0.5) AS p50_ms, latency_quantile(s.latencies, 0.95) AS p95_ms, latency_quantile(s.latencies, 0.99) AS p99_ms
FROM counted c LEFT JOIN sketches s USING (rule)
ORDER BY p99_ms DESC NULLS LAST, rule
LIMIT @limit
