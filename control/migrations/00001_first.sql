-- +goose Up
-- Who changes something: the API sets it for its transaction, and a statement by hand has the user of its session.
CREATE FUNCTION actor() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT coalesce(nullif(current_setting('spillway.actor', true), ''), session_user::text)
$$;

CREATE TABLE domains (
  name       text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 256),
  created_by text NOT NULL DEFAULT actor(),
  created_at timestamptz NOT NULL DEFAULT now()
);

-- A version of the rule set of a domain is never changed: who was refused by which rule stays answerable.
CREATE TABLE rule_versions (
  domain     text NOT NULL REFERENCES domains (name),
  version    bigint NOT NULL CHECK (version > 0),
  text       text NOT NULL CHECK (text <> ''),
  hash       text NOT NULL CHECK (hash = encode(sha256(convert_to(text, 'UTF8')), 'hex')),
  rules      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(rules) = 'array'), -- in the words of a rule file
  costs      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(costs) = 'array'),
  identity   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(identity) = 'object'),
  note       text NOT NULL DEFAULT '',
  created_by text NOT NULL DEFAULT actor(),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, version)
);

-- The rules of each version, one row each.
CREATE VIEW rules AS
  SELECT v.domain, v.version, r.rule->>'name' AS name, r.place - 1 AS position,
    (r.rule->>'priority')::integer AS priority,
    (r.rule->>'enabled')::boolean AS enabled, r.rule->'scope' AS scope, r.rule->'match' AS match,
    r.rule->'limits' AS limits, r.rule->>'action' AS action, (r.rule->>'cost')::bigint AS cost,
    r.rule->'penalty' AS penalty, r.rule->'response' AS response, r.rule->>'on_failure' AS on_failure
  FROM rule_versions v, jsonb_array_elements(v.rules) WITH ORDINALITY AS r (rule, place);

-- Which version was in force from when. The newest publication of a domain is in force; an old version may be published
-- again. A publication without a version takes the rules of its domain out of force.
CREATE TABLE publications (
  domain       text NOT NULL REFERENCES domains (name),
  publication  bigint NOT NULL CHECK (publication > 0),
  version      bigint,
  canary       bigint, -- a version that a share of the sidecars uses in place of the other one
  share        integer NOT NULL DEFAULT 0 CHECK (share BETWEEN 0 AND 99), -- in percent
  note         text NOT NULL DEFAULT '',
  published_by text NOT NULL DEFAULT actor(),
  published_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, publication),
  FOREIGN KEY (domain, version) REFERENCES rule_versions (domain, version),
  FOREIGN KEY (domain, canary) REFERENCES rule_versions (domain, version),
  CONSTRAINT canary_needs_a_version_and_a_share
    CHECK ((canary IS NULL) = (share = 0) AND (canary IS NULL OR version IS NOT NULL))
);
CREATE INDEX publications_version ON publications (domain, version);
CREATE INDEX publications_canary ON publications (domain, canary);

CREATE TABLE tiers (
  domain       text NOT NULL REFERENCES domains (name),
  name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
  display_name text NOT NULL DEFAULT '',
  limits       jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(limits) = 'array'),
  price        numeric(12, 2) CHECK (price >= 0),
  rank         integer NOT NULL DEFAULT 0,
  revision     bigint NOT NULL DEFAULT 1,
  updated_by   text NOT NULL DEFAULT actor(),
  updated_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, name)
);

-- What is known about one identity: blocks of all kinds, and tiers and quotas of users. Times are of the years 1970 to
-- 9999, which programs and JSON can read.
CREATE TABLE profiles (
  domain          text NOT NULL REFERENCES domains (name),
  kind            text NOT NULL DEFAULT 'user' CHECK (kind IN ('user', 'tenant', 'ip', 'api_key')),
  name            text NOT NULL CHECK (length(name) BETWEEN 1 AND 1024),
  tier            text,
  quota_hour      bigint CHECK (quota_hour > 0),
  quota_day       bigint CHECK (quota_day > 0),
  quota_month     bigint CHECK (quota_month > 0),
  burst           bigint CHECK (burst > 0),
  blocked         boolean NOT NULL DEFAULT false,
  block_reason    text NOT NULL DEFAULT '',
  blocked_until   timestamptz,
  last_request_at timestamptz,
  exceeded_count  bigint NOT NULL DEFAULT 0 CHECK (exceeded_count >= 0),
  upgraded_at     timestamptz, -- when it got its tier
  block_only      boolean NOT NULL DEFAULT false, -- a block made the row, which ends with the block
  identity        text, -- how usage and events name a user: the leader writes it, because it knows KEY_SECRET
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_by      text NOT NULL DEFAULT actor(),
  updated_at      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, kind, name),
  FOREIGN KEY (domain, tier) REFERENCES tiers (domain, name),
  CONSTRAINT burst_needs_quota_hour CHECK (burst IS NULL OR quota_hour IS NOT NULL),
  CONSTRAINT reason_and_until_need_a_block CHECK (blocked OR (block_reason = '' AND blocked_until IS NULL)),
  CONSTRAINT others_than_users_are_blocked CHECK (kind = 'user'
    OR blocked AND num_nonnulls(tier, quota_hour, quota_day, quota_month, burst) = 0),
  CONSTRAINT ip_is_a_network CHECK (kind <> 'ip' OR name::inet IS NOT NULL),
  CONSTRAINT blocked_until_has_a_year CHECK (blocked_until >= '1970-01-01Z' AND blocked_until < '10000-01-01Z')
) WITH (fillfactor = 85);
CREATE INDEX profiles_tier ON profiles (domain, tier);
CREATE INDEX profiles_blocked ON profiles (domain, kind, name) WHERE blocked;
CREATE INDEX profiles_identity ON profiles (domain, identity);
-- Users by their last request: those without one are the last.
CREATE INDEX profiles_last_request ON profiles (domain, (coalesce(last_request_at, '-infinity')), name)
  WHERE kind = 'user';
CREATE INDEX profiles_unnamed ON profiles (domain, name) WHERE kind = 'user' AND identity IS NULL;

CREATE VIEW users AS
  SELECT domain, name, tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until,
    last_request_at, exceeded_count, upgraded_at, identity, revision, created_at, updated_by, updated_at
  FROM profiles WHERE kind = 'user';

CREATE VIEW blocks AS
  SELECT domain, kind, name, block_reason AS reason, blocked_until AS until, revision, updated_by, updated_at
  FROM profiles WHERE blocked;

-- +goose StatementBegin
CREATE FUNCTION begin_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO profiles (domain, kind, name, block_only, blocked, block_reason, blocked_until)
    VALUES (NEW.domain, NEW.kind, NEW.name, true, true, coalesce(NEW.reason, ''), NEW.until)
    ON CONFLICT (domain, kind, name) DO UPDATE
    SET blocked = true, block_reason = excluded.block_reason, blocked_until = excluded.blocked_until;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER begin_block INSTEAD OF INSERT ON blocks FOR EACH ROW EXECUTE FUNCTION begin_block();

-- The end of a block leaves what else is known about a user. A row that the block made goes with it, unless API keys
-- belong to it by now.
-- +goose StatementBegin
CREATE FUNCTION end_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM profiles p WHERE (domain, kind, name) = (OLD.domain, OLD.kind, OLD.name) AND block_only AND NOT EXISTS (
    SELECT FROM api_keys k WHERE (k.domain, k.user_kind, k.user_name) = (p.domain, p.kind, p.name));
  UPDATE profiles SET blocked = false, block_reason = '', blocked_until = NULL
    WHERE (domain, kind, name) = (OLD.domain, OLD.kind, OLD.name);
  RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE TRIGGER end_block INSTEAD OF DELETE ON blocks FOR EACH ROW EXECUTE FUNCTION end_block();

-- Sidecars count the requests of each API key by a name that is made of its id or of the key itself, as the mesh sends
-- it. The leader writes both names; they are NULL until then.
CREATE TABLE api_keys (
  domain           text NOT NULL,
  id               text NOT NULL CHECK (length(id) BETWEEN 1 AND 256),
  digest           bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  prefix           text NOT NULL CHECK (length(prefix) BETWEEN 1 AND 16), -- by which people know a key
  user_kind        text NOT NULL DEFAULT 'user' CHECK (user_kind = 'user'),
  user_name        text NOT NULL,
  name             text NOT NULL DEFAULT '' CHECK (length(name) <= 256), -- what people call it
  tier             text,
  limits           jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(limits) = 'array'),
  expires_at       timestamptz,
  revoked_at       timestamptz,
  revoked_by       text,
  last_used_at     timestamptz,
  total_requests   bigint NOT NULL DEFAULT 0 CHECK (total_requests >= 0),
  refused_requests bigint NOT NULL DEFAULT 0 CHECK (refused_requests >= 0), -- of total_requests
  counted_id       text,
  counted_key      text,
  revision         bigint NOT NULL DEFAULT 1,
  created_by       text NOT NULL DEFAULT actor(),
  created_at       timestamptz NOT NULL DEFAULT now(),
  updated_by       text NOT NULL DEFAULT actor(),
  updated_at       timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, id),
  FOREIGN KEY (domain, user_kind, user_name) REFERENCES profiles (domain, kind, name),
  FOREIGN KEY (domain, tier) REFERENCES tiers (domain, name),
  CONSTRAINT revoked_by_and_at_go_together CHECK ((revoked_at IS NULL) = (revoked_by IS NULL)),
  CONSTRAINT expires_at_has_a_year CHECK (expires_at >= '1970-01-01Z' AND expires_at < '10000-01-01Z')
) WITH (fillfactor = 85);
CREATE INDEX api_keys_digest ON api_keys (domain, digest);
CREATE INDEX api_keys_user ON api_keys (domain, user_kind, user_name);
CREATE INDEX api_keys_tier ON api_keys (domain, tier);
CREATE INDEX api_keys_counted_id ON api_keys (domain, counted_id);
CREATE INDEX api_keys_counted_key ON api_keys (domain, counted_key);
CREATE INDEX api_keys_unnamed ON api_keys (domain, id) WHERE counted_id IS NULL;

-- Requests to erase what is known of one identity. `name` and `also` hold whom until the erasure ends, and nothing
-- after it.
CREATE TABLE erasures (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  domain      text NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('user', 'tenant', 'ip', 'api_key')),
  name        text,
  also        jsonb,
  state       text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'left')),
  asked_by    text NOT NULL,
  asked_at    timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  problem     text NOT NULL DEFAULT '',
  places      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(places) = 'array'),
  CONSTRAINT open_has_a_name CHECK ((state = 'open') = (name IS NOT NULL)),
  CONSTRAINT ended_has_a_time CHECK ((state = 'open') = (finished_at IS NULL)),
  CONSTRAINT ended_names_no_keys CHECK (state = 'open' OR also IS NULL)
);
CREATE INDEX erasures_open ON erasures (id) WHERE state = 'open';

-- The change log: what has changed, and, while done_at is NULL, what is not yet in Redis. A row without `after` is of
-- something that was deleted: no other table has it.
CREATE TABLE audit (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT now(),
  who     text NOT NULL DEFAULT actor(),
  address text NOT NULL DEFAULT coalesce(current_setting('spillway.address', true), ''),
  action  text NOT NULL,
  domain  text NOT NULL,
  kind    text NOT NULL,
  name    text NOT NULL,
  before  jsonb,
  after   jsonb,
  done_at timestamptz
);
CREATE INDEX audit_subject ON audit (domain, kind, name, id);
CREATE INDEX audit_open ON audit (id) WHERE done_at IS NULL;
CREATE INDEX audit_deleted ON audit (at) WHERE after IS NULL AND before IS NOT NULL;

-- The log of each table. The first argument is the kind of what a row is about, '' where a column has it, and the
-- second one is the column of its name. A load of many users and an erasure set spillway.log to off, for themselves alone.
-- +goose StatementBegin
CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  hidden CONSTANT text[] := '{text,rules,costs,identity,counted_id,counted_key,user_kind,upgraded_at,block_only}';
  before jsonb := CASE WHEN TG_OP <> 'INSERT' THEN jsonb_strip_nulls(to_jsonb(OLD)) - hidden END;
  after  jsonb := CASE WHEN TG_OP <> 'DELETE' THEN jsonb_strip_nulls(to_jsonb(NEW)) - hidden END;
  one    jsonb := coalesce(after, before);
BEGIN
  INSERT INTO audit (action, domain, kind, name, before, after, done_at) VALUES (
    coalesce(nullif(current_setting('spillway.action', true), ''), lower(TG_OP)), one->>'domain',
    coalesce(nullif(TG_ARGV[0], ''), one->>'kind'), one->>TG_ARGV[1], before, after,
    CASE WHEN TG_TABLE_NAME = 'rule_versions' THEN now() END); -- what is only kept changes nothing in Redis
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- What is counted about a user or a key is no change of it: the triggers name the columns that are.
-- +goose StatementBegin
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.revision := OLD.revision + 1;
  NEW.updated_by := actor();
  NEW.updated_at := now();
  RETURN NEW;
END $$;
-- +goose StatementEnd
-- Who sets what is known of a user makes it more than a block, and a tier has the time since when it is the user's.
-- +goose StatementBegin
CREATE FUNCTION note_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.block_only := false;
  IF NEW.tier IS DISTINCT FROM OLD.tier THEN
    NEW.upgraded_at := CASE WHEN NEW.tier IS NOT NULL THEN now() END;
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER note_user BEFORE UPDATE OF tier, quota_hour, quota_day, quota_month, burst ON profiles
  FOR EACH ROW EXECUTE FUNCTION note_user();
CREATE TRIGGER note_new_user BEFORE INSERT ON profiles
  FOR EACH ROW WHEN (NEW.tier IS NOT NULL) EXECUTE FUNCTION note_user();

CREATE TRIGGER stamp BEFORE UPDATE ON tiers FOR EACH ROW EXECUTE FUNCTION stamp();
CREATE TRIGGER stamp BEFORE UPDATE OF tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason,
  blocked_until ON profiles FOR EACH ROW EXECUTE FUNCTION stamp();
CREATE TRIGGER stamp BEFORE UPDATE OF user_name, name, tier, limits, expires_at, revoked_at
  ON api_keys FOR EACH ROW EXECUTE FUNCTION stamp();

CREATE TRIGGER log_change AFTER INSERT ON rule_versions FOR EACH ROW EXECUTE FUNCTION log_change('rules', 'domain');
CREATE TRIGGER log_change AFTER INSERT ON publications FOR EACH ROW EXECUTE FUNCTION log_change('rules', 'domain');
CREATE TRIGGER log_change AFTER INSERT OR UPDATE OR DELETE ON tiers
  FOR EACH ROW EXECUTE FUNCTION log_change('tier', 'name');
CREATE TRIGGER log_change AFTER INSERT OR DELETE ON profiles FOR EACH ROW
  WHEN (current_setting('spillway.log', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION log_change('', 'name');
CREATE TRIGGER log_update AFTER UPDATE OF tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason,
  blocked_until ON profiles FOR EACH ROW
  WHEN (current_setting('spillway.log', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION log_change('', 'name');
CREATE TRIGGER log_change AFTER INSERT OR DELETE ON api_keys FOR EACH ROW
  WHEN (current_setting('spillway.log', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION log_change('key', 'id');
CREATE TRIGGER log_update AFTER UPDATE OF user_name, name, tier, limits, expires_at, revoked_at ON api_keys FOR EACH ROW
  WHEN (current_setting('spillway.log', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION log_change('key', 'id');

-- A line of the audit that is not in Redis yet leaves its number to its transaction, so that who makes the change can
-- wait for it.
-- +goose StatementBegin
CREATE FUNCTION notify_leader() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_TABLE_NAME = 'audit' THEN
    PERFORM set_config('spillway.changed', NEW.id::text, true);
  END IF;
  PERFORM pg_notify('spillway', '');
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER notify_leader AFTER INSERT ON audit FOR EACH ROW WHEN (NEW.done_at IS NULL)
  EXECUTE FUNCTION notify_leader();
CREATE TRIGGER notify_leader AFTER INSERT ON erasures EXECUTE FUNCTION notify_leader();

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed: add a new one', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON rule_versions EXECUTE FUNCTION refuse_change();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON publications EXECUTE FUNCTION refuse_change();
CREATE TRIGGER immutable BEFORE TRUNCATE ON audit EXECUTE FUNCTION refuse_change();

-- The leader forgets lines that are older than it keeps the audit. Lines that are not yet in Redis stay.
-- +goose StatementBegin
CREATE FUNCTION forget_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.done_at IS NULL OR NOT coalesce(
    OLD.at < nullif(current_setting('spillway.forgets', true), '')::timestamptz, false) THEN
    RAISE EXCEPTION 'rows of audit are never changed: add a new one' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END $$;
-- +goose StatementEnd
CREATE TRIGGER forget_only BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION forget_only();

-- Rows of the audit stay as they are, but for done_at, with one exception: while an erasure is open it may take a name,
-- and what was before and after, out of a row. Who did what and when stays, and the row names the erasure.
-- +goose StatementBegin
CREATE FUNCTION redact_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  erasure bigint := substring(NEW.name FROM '^erasure ([0-9]{1,18})$')::bigint;
BEGIN
  IF (NEW.id, NEW.at, NEW.who, NEW.address, NEW.action, NEW.domain, NEW.kind)
      IS DISTINCT FROM (OLD.id, OLD.at, OLD.who, OLD.address, OLD.action, OLD.domain, OLD.kind)
    OR NEW.before IS NOT NULL OR NEW.after IS DISTINCT FROM jsonb_build_object('erasure', erasure)
    OR NOT EXISTS (SELECT FROM erasures WHERE id = erasure AND state = 'open' AND domain = OLD.domain) THEN
    RAISE EXCEPTION 'rows of audit are never changed: add a new one' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER redact_only BEFORE UPDATE OF id, at, who, address, action, domain, kind, name, before, after ON audit
  FOR EACH ROW EXECUTE FUNCTION redact_only();

-- What sidecars admitted and refused, exactly. The rule '' counts requests as a whole, once each; a named rule
-- counts what it was charged. An identity is kind:value, such as user:ann; with KEY_SECRET the value is an HMAC.
-- The identity '' stands for requests without one.
CREATE TABLE usage_minutes (
  minute   timestamptz NOT NULL CHECK (date_trunc('minute', minute, 'UTC') = minute),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, minute, outcome)
) PARTITION BY RANGE (minute);

-- Single requests: all that were refused, and of the others one in `weight`. A row is named by the sidecar, the
-- number of the entry that it came in and its place there, so that an entry that is read twice is stored once.
-- Texts are '' where they are unknown.
CREATE TABLE events (
  at          timestamptz NOT NULL,
  sidecar     text NOT NULL,
  sequence    bigint NOT NULL CHECK (sequence > 0),
  place       integer NOT NULL CHECK (place >= 0),
  domain      text NOT NULL,
  outcome     text NOT NULL,
  rule        text NOT NULL,
  identity    text NOT NULL,
  api_key     text NOT NULL, -- its id; of one that the table of API keys does not have, the name in rows of usage
  ip          text NOT NULL, -- with KEY_SECRET an HMAC
  method      text NOT NULL,
  endpoint    text NOT NULL,
  count       bigint NOT NULL, -- what the counter that decided held
  count_limit bigint NOT NULL, -- what it may hold; 0: no limit decided
  cost        bigint NOT NULL,
  status      smallint NOT NULL,
  retry_after real NOT NULL, -- in seconds
  latency     real NOT NULL, -- of the decision, in milliseconds
  region      text NOT NULL,
  weight      integer NOT NULL CHECK (weight > 0),
  tenant      text NOT NULL DEFAULT '', -- tenant:value, of whoever asked
  PRIMARY KEY (at, sidecar, sequence, place)
) PARTITION BY RANGE (at);

-- How far the streams of Redis have been copied, for each sidecar and stream. It is changed in the transaction that
-- stores what was read.
CREATE TABLE record_sources (
  sidecar  text NOT NULL,
  stream   text NOT NULL CHECK (stream IN ('usage', 'events')),
  sequence bigint NOT NULL CHECK (sequence > 0),
  region   text NOT NULL,
  first_at timestamptz NOT NULL DEFAULT now(),
  last_at  timestamptz NOT NULL DEFAULT now(),
  ended    boolean NOT NULL DEFAULT false, -- it said that nothing comes after
  dropped  bigint NOT NULL DEFAULT 0 CHECK (dropped >= 0), -- what the sidecar had no room for
  missing  bigint NOT NULL DEFAULT 0 CHECK (missing >= 0), -- entries that left the stream before they were copied
  rows     bigint NOT NULL DEFAULT 0 CHECK (rows >= 0), -- that were stored
  moved    bigint NOT NULL DEFAULT 0 CHECK (moved >= 0), -- of these, rows whose time could not be right
  refused  bigint NOT NULL DEFAULT 0 CHECK (refused >= 0), -- entries that could not be stored
  PRIMARY KEY (sidecar, stream)
);
-- Latencies are counts of buckets: the element i counts latencies in (1.1^(i-2), 1.1^(i-1)] microseconds, the first
-- one those of at most 1 µs. Two such lists merge by adding.
-- +goose StatementBegin
CREATE FUNCTION add_latencies(a bigint[], b bigint[]) RETURNS bigint[]
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY i), '{}')
  FROM unnest(a, b) WITH ORDINALITY AS u (x, y, i)
$$;
-- +goose StatementEnd
CREATE AGGREGATE sum_latencies(bigint[]) (SFUNC = add_latencies, STYPE = bigint[], INITCOND = '{}',
  COMBINEFUNC = add_latencies, PARALLEL = SAFE);

-- The latency in milliseconds that the share q of all does not exceed, at most 5 % off; NULL where there is none.
-- +goose StatementBegin
CREATE FUNCTION latency_quantile(latencies bigint[], q double precision) RETURNS double precision
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT CASE WHEN i = 1 THEN 0.001 ELSE 2 * power(1.1, i - 1) / 2.1 / 1000 END::double precision
  FROM (SELECT i, n, sum(n) OVER (ORDER BY i) AS reached, sum(n) OVER () AS total
    FROM unnest(latencies) WITH ORDINALITY AS u (n, i)) AS counted
  WHERE n > 0 AND reached >= ceil(q::numeric * total) ORDER BY i LIMIT 1
$$;
-- +goose StatementEnd

-- Usage by hour and by day of UTC. It is added up in the transaction that stores the minutes, so that late minutes
-- count here, too. Tables of minutes, hours and days have partitions, which the leader makes and drops: one for each
-- month, and of tables of days one for each year.
CREATE TABLE usage_hours (
  at       timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) PARTITION BY RANGE (at);
CREATE TABLE usage_days (
  at       timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) PARTITION BY RANGE (at);

-- The same of each tenant, whoever asked: a request of a user of a tenant is in the usage of the user and here. The
-- identity is that of the tenant, such as tenant:acme.
CREATE TABLE tenant_minutes (
  at       timestamptz NOT NULL CHECK (date_trunc('minute', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) PARTITION BY RANGE (at);
CREATE TABLE tenant_hours (
  at       timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) PARTITION BY RANGE (at);
CREATE TABLE tenant_days (
  at       timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  domain   text NOT NULL,
  rule     text NOT NULL,
  identity text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, rule, at, outcome)
) PARTITION BY RANGE (at);

-- What each identity used of each endpoint: whole requests.
CREATE TABLE call_hours (
  at       timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain   text NOT NULL,
  identity text NOT NULL,
  endpoint text NOT NULL,
  outcome  text NOT NULL CHECK (outcome <> ''),
  requests bigint NOT NULL CHECK (requests >= 0),
  cost     bigint NOT NULL CHECK (cost >= 0),
  PRIMARY KEY (domain, identity, at, endpoint, outcome)
) PARTITION BY RANGE (at);

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
) PARTITION BY RANGE (at);
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
) PARTITION BY RANGE (at);

-- Hits and misses of the caches of all sidecars together.
CREATE TABLE cache_minutes (
  at     timestamptz NOT NULL CHECK (date_trunc('minute', at, 'UTC') = at),
  domain text NOT NULL,
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (domain, at, cache)
) WITH (fillfactor = 80);
CREATE TABLE cache_hours (
  at     timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain text NOT NULL,
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (domain, at, cache)
) WITH (fillfactor = 80);
CREATE TABLE cache_days (
  at     timestamptz NOT NULL CHECK (date_trunc('day', at, 'UTC') = at),
  domain text NOT NULL,
  cache  text NOT NULL,
  hits   bigint NOT NULL CHECK (hits >= 0),
  misses bigint NOT NULL CHECK (misses >= 0),
  PRIMARY KEY (domain, at, cache)
) WITH (fillfactor = 80);

CREATE INDEX events_identity ON events (domain, identity, at);
CREATE INDEX events_tenant ON events (domain, tenant, at) WHERE tenant <> '';
-- Refusals of a domain by time. It holds all that is asked of many refusals, so that their rows need not be read.
CREATE INDEX events_refused ON events (domain, at) INCLUDE (identity, method, endpoint, rule)
  WHERE outcome IN ('refused', 'blocked', 'malformed');

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

-- The fingerprint of the KEY_SECRET that names in usage and events were made with.
CREATE TABLE record_names (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  fingerprint text NOT NULL
);

-- Latencies of one identity's decisions in an hour, by its events: all refusals, and of the others samples, each of
-- which counts as often as its weight says. An element is a bucket of latencies, as the other tables have them, and
-- what it counts: bucket * 2^40 + count. Most identities fill few of the 256 buckets. A bucket may be listed
-- several times: its counts add up.
CREATE TABLE identity_hours (
  at        timestamptz NOT NULL CHECK (date_trunc('hour', at, 'UTC') = at),
  domain    text NOT NULL,
  identity  text NOT NULL,
  samples   bigint NOT NULL CHECK (samples > 0), -- events
  latencies bigint[] NOT NULL,
  PRIMARY KEY (domain, identity, at)
) PARTITION BY RANGE (at);

-- Both lists together. To append is cheap; a list that is long is added up by bucket first.
-- +goose StatementBegin
CREATE FUNCTION add_few_latencies(a bigint[], b bigint[]) RETURNS bigint[]
  LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  IF cardinality(a) < 128 THEN
    RETURN a || b;
  END IF;
  RETURN (SELECT array_agg(bucket << 40 | n ORDER BY bucket)
    FROM (SELECT v >> 40 AS bucket, least(sum(v & 1099511627775), 1099511627775)::bigint AS n
      FROM unnest(a || b) AS v GROUP BY 1) AS added);
END $$;
-- +goose StatementEnd
CREATE AGGREGATE sum_few_latencies(bigint[]) (SFUNC = add_few_latencies, STYPE = bigint[], INITCOND = '{}',
  COMBINEFUNC = add_few_latencies, PARALLEL = SAFE);

-- The same in the form of the other tables, which add_latencies and latency_quantile take.
-- +goose StatementBegin
CREATE FUNCTION all_latencies(few bigint[]) RETURNS bigint[]
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  WITH counted AS (SELECT v >> 40 AS bucket, sum(v & 1099511627775)::bigint AS n FROM unnest(few) AS v GROUP BY 1)
  SELECT coalesce(array_agg(coalesce(n, 0) ORDER BY i), '{}') 
  FROM generate_series(0, (SELECT max(bucket) FROM counted)) AS i LEFT JOIN counted ON bucket = i
$$;
-- +goose StatementEnd

-- The bucket of a latency in milliseconds.
-- +goose StatementBegin
CREATE FUNCTION latency_bucket(latency real) RETURNS bigint
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT least(255, greatest(0, ceil(ln(greatest(round(latency::float8 * 1000), 1)) / ln(1.1::float8) - 1e-9)))::bigint
$$;
-- +goose StatementEnd

-- Files of events in the archive. A file is listed once its rows were read back from the store. `source` and
-- `digest` name the rows of the partition that it was made of, until the partition is dropped, which seals the
-- file.
CREATE TABLE archives (
  path        text PRIMARY KEY,
  region      text NOT NULL,
  day         date NOT NULL,
  rows        bigint NOT NULL CHECK (rows > 0),
  bytes       bigint NOT NULL CHECK (bytes > 0),
  checksum    text NOT NULL CHECK (checksum ~ '^[0-9a-f]{64}$'), -- of the rows, as read back
  source      text NOT NULL,
  digest      numeric NOT NULL,
  sealed      boolean NOT NULL DEFAULT false,
  verified_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX archives_day ON archives (day);
CREATE INDEX archives_open ON archives (source, day, region) WHERE NOT sealed;

-- Where `spillway archive restore` puts rows.
CREATE TABLE events_restored (LIKE events INCLUDING ALL);
