package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/rules"
)

// isRecord reports whether a subject of the outbox is an identity.
func isRecord(s database.Subject) bool {
	return s.Kind != database.KindRules && s.Kind != database.KindLoad
}

// IdentityOf is a subject of the outbox in the terms of package records.
func IdentityOf(s database.Subject) (records.Identity, error) {
	id := records.Identity{Domain: s.Domain, Name: s.Name}
	switch s.Kind {
	case database.KindUser:
		id.Kind = records.User
	case "tenant":
		id.Kind = records.Tenant
	case "api_key":
		id.Kind = records.APIKey
	case database.KindSecret:
		id.Kind = records.Secret
	case "ip":
		network, known := descriptors.ParseAddress(s.Name)
		if !known {
			return id, fmt.Errorf("%q must be an address or a network", s.Name)
		}
		id.Kind, id.Name, id.Network = records.Network, "", network.Masked()
	default:
		return id, fmt.Errorf("%q is not a kind of identity", s.Kind)
	}
	return id, nil
}

// wanted is the records of some identities as the database has them. Subjects of other kinds, and those that no identity can have, are left out.
func wanted(ctx context.Context, q source, subjects []database.Subject, now time.Time) ([]records.Wanted, error) {
	made, err := recordsOf(ctx, q, subjects, now)
	if err != nil {
		return nil, err
	}
	var all []records.Wanted
	seen := map[database.Subject]bool{}
	for _, s := range subjects {
		if !isRecord(s) || seen[s] {
			continue
		}
		seen[s] = true
		id, err := IdentityOf(s)
		if err != nil {
			q.unfit(fmt.Errorf("the domain %q: %w", s.Domain, err))
			continue
		}
		all = append(all, kept(id, made[s]))
	}
	return all, nil
}

// kept is a record, nil for none, that the control plane keeps.
func kept(id records.Identity, r *records.Record) records.Wanted {
	if r != nil {
		r.Control = true
	}
	return records.Wanted{Identity: id, Record: r}
}

// recordsOf makes the records of subjects; those without one are missing.
func recordsOf(ctx context.Context, q source, subjects []database.Subject, now time.Time) (map[database.Subject]*records.Record, error) {
	made := map[database.Subject]*records.Record{}
	var domains, kinds, names []string
	for _, s := range subjects {
		domains, kinds, names = append(domains, s.Domain), append(kinds, s.Kind), append(names, s.Name)
	}
	const asked = `WITH asked AS (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[]) AS a (d, k, n)) `
	users, err := database.Many[database.User](ctx, q, asked+`SELECT `+database.UserColumns+` FROM users JOIN asked ON k = 'user' AND domain = d AND name = n`, domains, kinds, names)
	if err != nil {
		return nil, err
	}
	for i := range users {
		if r := userRecord(&users[i], now); r != nil {
			made[database.Subject{users[i].Domain, database.KindUser, users[i].Name}] = r
		}
	}
	const columns = `SELECT k AS kind, encode(digest, 'hex') AS digest, domain, id, user_name, tier, limits, expires_at, revoked_at IS NOT NULL AS revoked FROM api_keys JOIN asked `
	keys, err := database.Many[keyRow](ctx, q, asked+columns+`ON k = 'api_key' AND domain = d AND id = n UNION ALL `+
		columns+`ON k = 'secret' AND domain = d AND digest = CASE WHEN k = 'secret' THEN decode(n, 'hex') END`, domains, kinds, names) // each with its own index
	if err != nil {
		return nil, err
	}
	for i := range keys {
		keys[i].addTo(made, q.unfit)
	}
	blocks, err := database.Many[database.Block](ctx, q, asked+`SELECT `+database.BlockColumns+` FROM blocks JOIN asked ON domain = d AND kind = k AND name = n WHERE until IS NULL OR until > $4`, domains, kinds, names, now)
	addBlocks(made, blocks)
	return made, err
}

// addBlocks adds blocks to records.
func addBlocks(made map[database.Subject]*records.Record, blocks []database.Block) {
	for i := range blocks {
		b := &blocks[i]
		s := database.Subject{b.Domain, b.Kind, b.Name}
		if made[s] == nil {
			made[s] = &records.Record{}
		}
		addBlock(made[s], b)
	}
}

// addBlock adds a block to a record.
func addBlock(r *records.Record, b *database.Block) {
	r.By, r.At = b.UpdatedBy, b.UpdatedAt.UTC().Truncate(time.Second)
	r.Block = &records.Block{Reason: b.Reason, Until: instant(b.Until)}
}

// instant is a time in UTC, zero for none.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// userRecord is the record of a user, or nil where nothing is to be known about it.
func userRecord(u *database.User, now time.Time) *records.Record {
	r := &records.Record{Tier: textOf(u.Tier), By: u.UpdatedBy, At: u.UpdatedAt.UTC().Truncate(time.Second)}
	if u.Blocked && (u.BlockedUntil == nil || u.BlockedUntil.After(now)) {
		r.Block = &records.Block{Reason: u.BlockReason, Until: instant(u.BlockedUntil)}
	}
	r.Limits = database.Quotas(u)
	if r.Tier == "" && r.Block == nil && len(r.Limits) == 0 {
		return nil
	}
	return r
}

// keyRow is an API key that was asked for by its id or by its digest.
type keyRow struct {
	Kind, Digest, Domain, ID, UserName string
	Tier                               *string
	Limits                             []byte // as JSON
	ExpiresAt                          *time.Time
	Revoked                            bool
}

// addTo adds the record of the key, of its digest or of its id.
func (k *keyRow) addTo(made map[database.Subject]*records.Record, unfit func(error)) {
	if k.Kind == database.KindSecret {
		made[database.Subject{k.Domain, database.KindSecret, k.Digest}] = k.secret()
		return
	}
	if r := k.own(unfit); r != nil {
		made[database.Subject{k.Domain, "api_key", k.ID}] = r
	}
}

// secret is the record of the digest.
func (k *keyRow) secret() *records.Record {
	return &records.Record{Key: &records.Key{ID: k.ID, User: k.UserName, Tier: textOf(k.Tier), Expires: instant(k.ExpiresAt), Revoked: k.Revoked}}
}

// own is the record of the id, nil for none. Limits that cannot be read are left out.
func (k *keyRow) own(unfit func(error)) *records.Record {
	limits, err := limitsIn(k.Limits)
	if err != nil {
		unfit(fmt.Errorf("the limits of the key %q of the domain %q: %w", k.ID, k.Domain, err))
	}
	if k.Tier == nil && len(limits) == 0 {
		return nil
	}
	return &records.Record{Tier: textOf(k.Tier), Limits: limits}
}

// limitsIn reads limits as the database keeps them.
func limitsIn(text []byte) ([]records.Limit, error) {
	if string(text) == "[]" {
		return nil, nil
	}
	var written []admin.NewLimit
	err := json.Unmarshal(text, &written)
	if err != nil {
		return nil, err
	}
	return admin.ParseLimits(written)
}

// textOf is a text, empty for none.
func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// documents are what sidecars take: the newest publication of each domain, with the limits of its tiers.
func documents(ctx context.Context, q database.Querier) (map[string]string, error) {
	published, err := database.Many[rules.Document](ctx, q, `SELECT DISTINCT ON (p.domain) p.domain, coalesce(p.version, 0) AS version, p.publication, coalesce(v.hash, '') AS hash,
	  coalesce(v.text, '') AS text, '' AS tiers, p.version IS NULL AS withdrawn
	  FROM publications p LEFT JOIN rule_versions v USING (domain, version) ORDER BY p.domain, p.publication DESC`)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, document := range published {
		tiers, err := database.TiersOf(ctx, q, document.Domain)
		if err != nil {
			return nil, err
		}
		if document.Withdrawn {
			tiers = nil
		}
		document.Tiers, err = database.TierRules(document.Domain, tiers)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		all[document.Domain] = string(text)
	}
	return all, nil
}
