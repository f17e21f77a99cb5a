-- +goose Up
-- Times that a program and JSON can read: of the years 1970 to 9999, and not infinite. One that is later is none, one that is earlier has passed.
UPDATE users SET blocked_until = CASE WHEN blocked_until < '1970-01-01Z' THEN '1970-01-01Z'::timestamptz END, revision = revision + 1
  WHERE blocked_until < '1970-01-01Z' OR blocked_until >= '10000-01-01Z';
UPDATE blocks SET until = CASE WHEN until < '1970-01-01Z' THEN '1970-01-01Z'::timestamptz END, revision = revision + 1
  WHERE until < '1970-01-01Z' OR until >= '10000-01-01Z';
UPDATE api_keys SET expires_at = CASE WHEN expires_at < '1970-01-01Z' THEN '1970-01-01Z'::timestamptz END, revision = revision + 1
  WHERE expires_at < '1970-01-01Z' OR expires_at >= '10000-01-01Z';
ALTER TABLE users ADD CONSTRAINT blocked_until_has_a_year CHECK (blocked_until >= '1970-01-01Z' AND blocked_until < '10000-01-01Z');
ALTER TABLE blocks ADD CONSTRAINT until_has_a_year CHECK (until >= '1970-01-01Z' AND until < '10000-01-01Z');
ALTER TABLE api_keys ADD CONSTRAINT expires_at_has_a_year CHECK (expires_at >= '1970-01-01Z' AND expires_at < '10000-01-01Z');
