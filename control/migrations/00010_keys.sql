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
