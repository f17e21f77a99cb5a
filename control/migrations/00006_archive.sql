-- +goose Up
-- Files of events in the archive. A file is listed once its rows were read back from the store. `source` and `digest` name the rows of the
-- partition that it was made of, until the partition is dropped, which seals the file.
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

-- Requests to erase what is known of one identity. `name` and `also` hold whom until the erasure ends, and nothing after it.
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

-- Rows of the audit stay as they are, with one exception: while an erasure is open it may take a name, and what was before and after, out of a row. Who did what
-- and when stays, and the row names the erasure.
-- +goose StatementBegin
CREATE FUNCTION redact_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  erasure bigint := substring(NEW.name FROM '^erasure ([0-9]{1,18})$')::bigint;
BEGIN
  IF (NEW.id, NEW.at, NEW.who, NEW.address, NEW.action, NEW.domain, NEW.kind) IS DISTINCT FROM (OLD.id, OLD.at, OLD.who, OLD.address, OLD.action, OLD.domain, OLD.kind)
    OR NEW.before IS NOT NULL OR NEW.after IS DISTINCT FROM jsonb_build_object('erasure', erasure)
    OR NOT EXISTS (SELECT FROM erasures WHERE id = erasure AND state = 'open' AND domain = OLD.domain) THEN
    RAISE EXCEPTION 'rows of audit are never changed: add a new one' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
DROP TRIGGER immutable ON audit;
CREATE TRIGGER immutable BEFORE DELETE OR TRUNCATE ON audit EXECUTE FUNCTION refuse_change();
CREATE TRIGGER redact_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION redact_only();
