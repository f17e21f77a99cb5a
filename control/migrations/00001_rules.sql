-- +goose Up
CREATE TABLE domains (
  name       text PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 256),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

-- A version of the rule set of a domain is never changed: who was refused by which rule stays answerable.
CREATE TABLE rule_versions (
  domain     text NOT NULL REFERENCES domains (name),
  version    bigint NOT NULL CHECK (version > 0),
  text       text NOT NULL CHECK (text <> ''),
  hash       text NOT NULL CHECK (hash = encode(sha256(convert_to(text, 'UTF8')), 'hex')),
  costs      jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(costs) = 'array'),
  identity   jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(identity) = 'object'),
  note       text NOT NULL DEFAULT '',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, version)
);

-- The rules of a version, in the words of a rule file.
CREATE TABLE rules (
  domain     text NOT NULL,
  version    bigint NOT NULL,
  name       text NOT NULL CHECK (name <> ''),
  position   integer NOT NULL CHECK (position >= 0),
  priority   integer NOT NULL,
  enabled    boolean NOT NULL,
  scope      text[] NOT NULL CHECK (scope <@ ARRAY['global', 'tenant', 'user', 'ip', 'endpoint', 'client', 'api_key', 'tier']),
  match      jsonb CHECK (jsonb_typeof(match) = 'object'),
  limits     jsonb NOT NULL CHECK (jsonb_typeof(limits) = 'array'),
  action     text NOT NULL CHECK (action IN ('reject', 'throttle', 'log_only', 'block', 'allow')),
  cost       bigint CHECK (cost > 0),
  penalty    jsonb CHECK (jsonb_typeof(penalty) = 'object'),
  response   jsonb CHECK (jsonb_typeof(response) = 'object'),
  on_failure text CHECK (on_failure IN ('local', 'open', 'closed')),
  PRIMARY KEY (domain, version, name),
  UNIQUE (domain, version, position),
  FOREIGN KEY (domain, version) REFERENCES rule_versions (domain, version)
);

-- Which version was in force from when. The newest publication of a domain is in force; an old version may be published again.
CREATE TABLE publications (
  domain       text NOT NULL,
  publication  bigint NOT NULL CHECK (publication > 0),
  version      bigint NOT NULL,
  note         text NOT NULL DEFAULT '',
  published_by text NOT NULL,
  published_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (domain, publication),
  FOREIGN KEY (domain, version) REFERENCES rule_versions (domain, version)
);
CREATE INDEX publications_version ON publications (domain, version);

CREATE TABLE audit (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT now(),
  who     text NOT NULL,
  address text NOT NULL,
  action  text NOT NULL,
  domain  text NOT NULL,
  kind    text NOT NULL,
  name    text NOT NULL,
  before  jsonb,
  after   jsonb
);
CREATE INDEX audit_subject ON audit (domain, kind, name, id);

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed: add a new one', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON rule_versions EXECUTE FUNCTION refuse_change();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON rules EXECUTE FUNCTION refuse_change();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON publications EXECUTE FUNCTION refuse_change();
CREATE TRIGGER immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON audit EXECUTE FUNCTION refuse_change();
