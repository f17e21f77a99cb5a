-- +goose Up
CREATE TABLE tiers (
  domain       text NOT NULL REFERENCES domains (name),
  name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 256),
  display_name text NOT NULL DEFAULT '',
  limits       jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(limits) = 'array'),
  price        numeric(12, 2) CHECK (price >= 0),
  rank         integer NOT NULL DEFAULT 0,
  revision     bigint NOT NULL DEFAULT 1,
  updated_by   text NOT NULL,
  updated_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, name)
);

CREATE TABLE users (
  domain          text NOT NULL REFERENCES domains (name),
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
  revision        bigint NOT NULL DEFAULT 1,
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_by      text NOT NULL,
  updated_at      timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, name),
  FOREIGN KEY (domain, tier) REFERENCES tiers (domain, name),
  CONSTRAINT burst_needs_quota_hour CHECK (burst IS NULL OR quota_hour IS NOT NULL),
  CONSTRAINT reason_and_until_need_a_block CHECK (blocked OR (block_reason = '' AND blocked_until IS NULL))
);
CREATE INDEX users_tier ON users (domain, tier);
CREATE INDEX users_blocked ON users (domain, name) WHERE blocked;

CREATE TABLE api_keys (
  domain         text NOT NULL,
  id             text NOT NULL CHECK (length(id) BETWEEN 1 AND 256),
  digest         bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
  prefix         text NOT NULL CHECK (length(prefix) BETWEEN 1 AND 16),
  user_name      text NOT NULL,
  tier           text,
  limits         jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(limits) = 'array'),
  expires_at     timestamptz,
  revoked_at     timestamptz,
  revoked_by     text,
  last_used_at   timestamptz,
  total_requests bigint NOT NULL DEFAULT 0 CHECK (total_requests >= 0),
  revision       bigint NOT NULL DEFAULT 1,
  created_by     text NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, id),
  FOREIGN KEY (domain, user_name) REFERENCES users (domain, name),
  FOREIGN KEY (domain, tier) REFERENCES tiers (domain, name),
  CONSTRAINT revoked_by_and_at_go_together CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
CREATE INDEX api_keys_digest ON api_keys (domain, digest);
CREATE INDEX api_keys_user ON api_keys (domain, user_name);
CREATE INDEX api_keys_tier ON api_keys (domain, tier);

-- Blocks of what is not a user: those of users stand with the users.
CREATE TABLE blocks (
  domain     text NOT NULL REFERENCES domains (name),
  kind       text NOT NULL CHECK (kind IN ('tenant', 'ip', 'api_key')),
  name       text NOT NULL CHECK (length(name) BETWEEN 1 AND 1024),
  reason     text NOT NULL DEFAULT '',
  until      timestamptz,
  revision   bigint NOT NULL DEFAULT 1,
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, kind, name),
  CONSTRAINT ip_is_a_network CHECK (kind <> 'ip' OR name::inet IS NOT NULL)
);
