-- +goose Up
-- What has changed and is not yet in Redis. Rows that are done stay for a while: the repair walk looks at what they name, too, because
-- what was deleted is in no other table.
CREATE TABLE outbox (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  domain  text NOT NULL,
  kind    text NOT NULL CHECK (kind IN ('rules', 'user', 'tenant', 'ip', 'api_key', 'secret')),
  name    text NOT NULL,
  at      timestamptz NOT NULL DEFAULT now(),
  done_at timestamptz
);
CREATE INDEX outbox_open ON outbox (id) WHERE done_at IS NULL;
CREATE INDEX outbox_done ON outbox (done_at) WHERE done_at IS NOT NULL;

-- +goose StatementBegin
CREATE FUNCTION feed(domain text, kind text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (domain, kind, name) VALUES (domain, kind, name);
  PERFORM pg_notify('spillway', '');
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION feed_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM feed(coalesce(NEW.domain, OLD.domain), 'rules', '');
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER feed AFTER INSERT ON publications FOR EACH ROW EXECUTE FUNCTION feed_rules();
CREATE TRIGGER feed AFTER INSERT OR UPDATE OR DELETE ON tiers FOR EACH ROW EXECUTE FUNCTION feed_rules();

-- +goose StatementBegin
CREATE FUNCTION feed_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM feed(coalesce(NEW.domain, OLD.domain), 'user', coalesce(NEW.name, OLD.name));
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER feed AFTER INSERT OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION feed_user();
-- A change of what is counted about a user is no change of its record.
CREATE TRIGGER feed_update AFTER UPDATE OF tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until ON users
  FOR EACH ROW EXECUTE FUNCTION feed_user();

-- +goose StatementBegin
CREATE FUNCTION feed_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM feed(coalesce(NEW.domain, OLD.domain), 'api_key', coalesce(NEW.id, OLD.id));
  PERFORM feed(coalesce(NEW.domain, OLD.domain), 'secret', encode(coalesce(NEW.digest, OLD.digest), 'hex'));
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER feed AFTER INSERT OR DELETE ON api_keys FOR EACH ROW EXECUTE FUNCTION feed_key();
CREATE TRIGGER feed_update AFTER UPDATE OF user_name, tier, limits, expires_at, revoked_at ON api_keys FOR EACH ROW EXECUTE FUNCTION feed_key();

-- +goose StatementBegin
CREATE FUNCTION feed_block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM feed(coalesce(NEW.domain, OLD.domain), coalesce(NEW.kind, OLD.kind), coalesce(NEW.name, OLD.name));
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER feed AFTER INSERT OR UPDATE OR DELETE ON blocks FOR EACH ROW EXECUTE FUNCTION feed_block();

-- What was there before the feed was.
INSERT INTO outbox (domain, kind, name)
  SELECT domain, 'rules', '' FROM publications UNION SELECT domain, 'user', name FROM users
  UNION SELECT domain, 'api_key', id FROM api_keys UNION SELECT domain, 'secret', encode(digest, 'hex') FROM api_keys
  UNION SELECT domain, kind, name FROM blocks;
