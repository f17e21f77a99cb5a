-- +goose Up
-- A load of users writes one row of the kind load in place of one for each user: the leader then compares all users with Redis. The
-- transaction of the load sets spillway.loading to on, for itself alone.
ALTER TABLE outbox DROP CONSTRAINT outbox_kind_check;
ALTER TABLE outbox ADD CONSTRAINT outbox_kind_check CHECK (kind IN ('rules', 'user', 'tenant', 'ip', 'api_key', 'secret', 'load'));
DROP TRIGGER feed ON users;
DROP TRIGGER feed_update ON users;
CREATE TRIGGER feed AFTER INSERT OR DELETE ON users FOR EACH ROW
  WHEN (current_setting('spillway.loading', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION feed_user();
CREATE TRIGGER feed_update AFTER UPDATE OF tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until ON users FOR EACH ROW
  WHEN (current_setting('spillway.loading', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION feed_user();

-- A publication without a version takes the rules of its domain out of force.
ALTER TABLE publications ALTER COLUMN version DROP NOT NULL;
