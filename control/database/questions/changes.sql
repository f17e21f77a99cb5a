WITH in_force AS (
  SELECT p.publication, p.version, p.published_at, p.published_by, v.created_by, p.note, to_jsonb(r) - 'domain' - 'version' - 'name' - 'position' AS rule
  FROM publications p
  LEFT JOIN rule_versions v ON v.domain = p.domain AND v.version = p.version
  LEFT JOIN rules r ON r.domain = p.domain AND r.name = @rule AND r.version = p.version
  WHERE p.domain = @domain
), steps AS (
  SELECT *, lag(rule) OVER (ORDER BY publication) AS before FROM in_force
)
SELECT published_at AS at, published_by AS who, created_by AS author,
  CASE WHEN before IS NULL THEN 'added' WHEN rule IS NULL THEN 'removed' ELSE 'changed' END AS change,
  version, publication, note, before, rule AS after
FROM steps
WHERE rule IS DISTINCT FROM before
ORDER BY publication DESC
LIMIT @limit
