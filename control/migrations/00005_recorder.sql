-- +goose Up
-- Latencies are counts of buckets: the element i counts latencies in (1.1^(i-2), 1.1^(i-1)] microseconds, the first one those of at most 1 µs. Two
-- such lists merge by adding.
-- +goose StatementBegin
CREATE FUNCTION add_latencies(a bigint[], b bigint[]) RETURNS bigint[] LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY i), '{}') FROM unnest(a, b) WITH ORDINALITY AS u (x, y, i)
$$;
-- +goose StatementEnd
CREATE AGGREGATE sum_latencies(bigint[]) (SFUNC = add_latencies, STYPE = bigint[], INITCOND = '{}', COMBINEFUNC = add_latencies, PARALLEL = SAFE);

-- The latency in milliseconds that the share q of all does not exceed, at most 5 % off; NULL where there is none.
-- +goose StatementBegin
CREATE FUNCTION latency_quantile(latencies bigint[], q double precision) RETURNS double precision LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE WHEN i = 1 THEN 0.001 ELSE 2 * power(1.1, i - 1) / 2.1 / 1000 END::double precision
  FROM (SELECT i, n, sum(n) OVER (ORDER BY i) AS reached, sum(n) OVER () AS total FROM unnest(latencies) WITH ORDINALITY AS u (n, i)) AS counted
  WHERE n > 0 AND reached >= ceil(q::numeric * total) ORDER BY i LIMIT 1
$$;
-- +goose StatementEnd

-- Usage by hour and by day of UTC. It is added up in the transaction that stores the minutes, so that late minutes count here, too.
CREATE TABLE usage_hours (
  at       timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) WITH (fillfactor = 80);
CREATE TABLE usage_days (
  at       timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) WITH (fillfactor = 80);

-- What was decided about endpoints, with latencies of the decisions. The rule is the one that decided.
CREATE TABLE endpoint_minutes (
  at        timestamptz NOT NULL CHECK (date_trunc('minute', at, 'UTC') = at),
  domain    text NOT NULL,
  rule      text NOT NULL,
  endpoint  text NOT NULL,
  outcome   text NOT NULL CHECK (outcome <> ''),
  requests  bigint NOT NULL CHECK (requests >= 0),
  cost      bigint NOT NULL CHECK (cost >= 0),
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, at, rule, endpoint, outcome)
) PARTITION BY RANGE (at);
CREATE TABLE endpoint_hours (
  at        timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain    text NOT NULL,
  rule      text NOT NULL,
  endpoint  text NOT NULL,
  outcome   text NOT NULL CHECK (outcome <> ''),
  requests  bigint NOT NULL CHECK (requests >= 0),
  cost      bigint NOT NULL CHECK (cost >= 0),
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, at, rule, endpoint, outcome)
) WITH (fillfactor = 80);
CREATE TABLE endpoint_days (
  at        timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  domain    text NOT NULL,
  rule      text NOT NULL,
  endpoint  text NOT NULL,
  outcome   text NOT NULL CHECK (outcome <> ''),
  requests  bigint NOT NULL CHECK (requests >= 0),
  cost      bigint NOT NULL CHECK (cost >= 0),
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, at, rule, endpoint, outcome)
) WITH (fillfactor = 80);

-- Hits and misses of the caches of all sidecars together.
CREATE TABLE cache_minutes (
  at     timestamptz NOT NULL CHECK (date_trunc('minute', at, 'UTC') = at),
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (at, cache)
) WITH (fillfactor = 80);
CREATE TABLE cache_hours (
  at     timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (at, cache)
) WITH (fillfactor = 80);
CREATE TABLE cache_days (
  at     timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (at, cache)
) WITH (fillfactor = 80);

CREATE INDEX events_identity ON events (domain, identity, at);

ALTER TABLE record_sources
  ADD COLUMN rows    bigint NOT NULL DEFAULT 0 CHECK (rows >= 0),    -- that were stored
  ADD COLUMN moved   bigint NOT NULL DEFAULT 0 CHECK (moved >= 0),   -- of these, rows whose time could not be right: they are stored under the time of the copy
  ADD COLUMN refused bigint NOT NULL DEFAULT 0 CHECK (refused >= 0); -- entries that could not be stored

-- The newest entries that could not be stored, and why. What was in them is not kept.
CREATE TABLE record_refused (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at       timestamptz NOT NULL DEFAULT now(),
  stream   text NOT NULL,
  entry    text NOT NULL, -- its id in the stream
  sidecar  text NOT NULL,
  sequence bigint NOT NULL,
  bytes    bigint NOT NULL,
  reason   text NOT NULL
);

-- How the record names a user. The leader writes it, because it knows KEY_SECRET; NULL until then.
ALTER TABLE users ADD COLUMN identity text;
ALTER TABLE users SET (fillfactor = 85);
CREATE INDEX users_identity ON users (domain, identity);
CREATE INDEX users_unnamed ON users (domain, name) WHERE identity IS NULL;
CREATE TABLE record_names (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  fingerprint text NOT NULL -- of the KEY_SECRET that the names were made with
);

-- Events name an API key by what it begins with.
CREATE INDEX api_keys_prefix ON api_keys (domain, prefix);
ALTER TABLE api_keys SET (fillfactor = 85);
