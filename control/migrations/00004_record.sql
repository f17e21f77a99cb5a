-- +goose Up
-- What sidecars admitted and refused, exactly. The rule '' counts requests as a whole, once each; a named rule counts what it was charged. An
-- identity is kind:value, such as user:ann; with KEY_SECRET the value is an HMAC. The identity '' stands for requests without one.
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

-- Single requests: all that were refused, and of the others one in `weight`. A row is named by the sidecar, the number of the entry that it came in and its
-- place there, so that an entry that is read twice is stored once. Texts are '' where they are unknown.
CREATE TABLE events (
  at          timestamptz NOT NULL,
  sidecar     text NOT NULL,
  sequence    bigint NOT NULL CHECK (sequence > 0),
  place       integer NOT NULL CHECK (place >= 0),
  domain      text NOT NULL,
  outcome     text NOT NULL,
  rule        text NOT NULL,
  identity    text NOT NULL,
  api_key     text NOT NULL, -- the first characters of the key
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
  PRIMARY KEY (at, sidecar, sequence, place)
) PARTITION BY RANGE (at);

-- How far the streams of Redis have been copied, for each sidecar and stream. It is changed in the transaction that stores what was read.
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
  PRIMARY KEY (sidecar, stream)
);
