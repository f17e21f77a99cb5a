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
-- element is a bucket of latencies, as the other tables have them, and what it counts: bucket * 2^40 + count. Most identities fill few of the 256 buckets. A bucket may
-- be listed several times: its counts add up.
CREATE TABLE identity_hours (
  at        timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain    text NOT NULL,
  identity  text NOT NULL,
  samples   bigint NOT NULL CHECK (samples > 0), -- events
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, identity, at)
) WITH (fillfactor = 80);

-- Both lists together. To append is cheap; a list that is long is added up by bucket first.
-- +goose StatementBegin
CREATE FUNCTION add_few_latencies(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  IF cardinality(a) < 128 THEN
    RETURN a || b;
  END IF;
  RETURN (SELECT array_agg(bucket << 40 | n ORDER BY bucket)
    FROM (SELECT v >> 40 AS bucket, least(sum(v & 1099511627775), 1099511627775)::bigint AS n FROM unnest(a || b) AS v GROUP BY 1) AS added);
END $$;
-- +goose StatementEnd
CREATE AGGREGATE sum_few_latencies(bigint[]) (SFUNC = add_few_latencies, STYPE = bigint[], INITCOND = '{}', COMBINEFUNC = add_few_latencies, PARALLEL = SAFE);

-- The same in the form of the other tables, which add_latencies and latency_quantile take.
-- +goose StatementBegin
CREATE FUNCTION all_latencies(few bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  WITH counted AS (SELECT v >> 40 AS bucket, sum(v & 1099511627775)::bigint AS n FROM unnest(few) AS v GROUP BY 1)
  SELECT coalesce(array_agg(coalesce(n, 0) ORDER BY i), '{}') FROM generate_series(0, (SELECT max(bucket) FROM counted)) AS i LEFT JOIN counted ON bucket = i
$$;
-- +goose StatementEnd

-- The bucket of a latency in milliseconds.
-- +goose StatementBegin
CREATE FUNCTION latency_bucket(latency real) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT least(255, greatest(0, ceil(ln(greatest(round(latency::float8 * 1000), 1)) / ln(1.1::float8) - 1e-9)))::bigint
$$;
-- +goose StatementEnd
