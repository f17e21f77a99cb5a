-- +goose Up
-- Sidecars count the requests of each API key, by a name that is made of its id or of the key itself, as the mesh sends it. The leader writes both names, because it
-- knows KEY_SECRET; they are NULL until then.
ALTER TABLE api_keys
  ADD COLUMN refused_requests bigint NOT NULL DEFAULT 0 CHECK (refused_requests >= 0), -- of total_requests
  ADD COLUMN counted_id  text,
  ADD COLUMN counted_key text;
CREATE INDEX api_keys_counted_id ON api_keys (domain, counted_id);
CREATE INDEX api_keys_counted_key ON api_keys (domain, counted_key);
CREATE INDEX api_keys_unnamed ON api_keys (domain, id) WHERE counted_id IS NULL;

-- Latencies of one identity's decisions in an hour, by its events: all refusals, and of the others samples, each of which counts as often as its weight says. An
-- element is a bucket of latencies, as the other tables have them, and what it counts: bucket * 2^40 + count. Most identities fill few of the 256 buckets.
CREATE TABLE identity_hours (
  at        timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain    text NOT NULL,
  identity  text NOT NULL,
  samples   bigint NOT NULL CHECK (samples > 0), -- events
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, identity, at)
) WITH (fillfactor = 80);

-- +goose StatementBegin
CREATE FUNCTION add_few_latencies(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(array_agg(bucket << 40 | n ORDER BY bucket), '{}')
  FROM (SELECT v >> 40 AS bucket, least(sum(v & 1099511627775), 1099511627775)::bigint AS n FROM unnest(a || b) AS v GROUP BY 1) AS added
$$;
-- +goose StatementEnd
CREATE AGGREGATE sum_few_latencies(bigint[]) (SFUNC = add_few_latencies, STYPE = bigint[], INITCOND = '{}', COMBINEFUNC = add_few_latencies, PARALLEL = SAFE);

-- The same in the form of the other tables, which add_latencies and latency_quantile take.
-- +goose StatementBegin
CREATE FUNCTION all_latencies(few bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(array_agg(coalesce(v & 1099511627775, 0) ORDER BY i), '{}')
  FROM generate_series(0, (SELECT max(v >> 40) FROM unnest(few) AS v)) AS i LEFT JOIN unnest(few) AS v ON v >> 40 = i
$$;
-- +goose StatementEnd

-- The same of one event: its latency in milliseconds, as often as its weight says.
-- +goose StatementBegin
CREATE FUNCTION few_latencies(latency real, weight integer) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT ARRAY[least(255, greatest(0, ceil(ln(greatest(round(latency::numeric * 1000), 1)) / ln(1.1)))::bigint) << 40 | weight]
$$;
-- +goose StatementEnd
