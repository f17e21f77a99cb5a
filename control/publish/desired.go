package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/profiles"
)

// IdentityOf is a subject in the terms of package profiles.
func IdentityOf(s database.Subject) (profiles.Identity, error) {
	id := profiles.Identity{Domain: s.Domain, Name: s.Name}
	switch s.Kind {
	case database.KindUser:
		id.Kind = profiles.User
	case "tenant":
		id.Kind = profiles.Tenant
	case "api_key":
		id.Kind = profiles.APIKey
	case database.KindSecret:
		id.Kind = profiles.Secret
	case "ip":
		network, known := descriptors.ParseAddress(s.Name)
		if !known {
			return id, fmt.Errorf("%q must be an address or a network", s.Name)
		}
		id.Kind, id.Name, id.Network = profiles.Network, "", network.Masked()
	default:
		return id, fmt.Errorf("%q must be a kind of identity", s.Kind)
	}
	return id, nil
}

// identitiesOf are the subjects that can have profiles.
func identitiesOf(subjects []database.Subject) (ids []profiles.Identity) {
	for _, s := range subjects {
		if id, err := IdentityOf(s); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// desired is a profile as the database has it, nil for none.
type desired struct {
	database.Subject
	identity profiles.Identity
	profile  *profiles.Profile
}

// row is a profile with the API key of the same id, or an API key with the profile of its id.
type row struct {
	database.User
	kind      string
	digest    *string // of an API key, in hex
	owner     *string
	keyTier   *string
	limits    []byte // as JSON
	expires   *time.Time
	revoked   bool
	changedAt *time.Time
}

// The two statements about rows: of all of them, or of some with more behind them. Both have the same columns.
const (
	rowColumns = `p.tier, p.quota_hour, p.quota_day, p.quota_month, p.burst, coalesce(p.blocked, false),
	  coalesce(p.block_reason, ''), p.blocked_until, coalesce(p.updated_by, k.updated_by),
	  greatest(p.updated_at, k.updated_at), encode(k.digest, 'hex'), k.user_name, k.tier, k.limits, k.expires_at,
	  k.revoked_at IS NOT NULL, k.updated_at`
	profileRows = `SELECT p.domain, p.kind, p.name, ` + rowColumns + ` FROM profiles p
	  LEFT JOIN api_keys k ON p.kind = 'api_key' AND k.domain = p.domain AND k.id = p.name `
	keyRows = `SELECT k.domain, 'api_key', k.id, ` + rowColumns + ` FROM api_keys k
	  LEFT JOIN profiles p ON p.kind = 'api_key' AND p.domain = k.domain AND p.name = k.id `
)

// to is where a row is read to.
func (r *row) to() []any {
	return []any{
		&r.Domain, &r.kind, &r.Name, &r.Tier, &r.QuotaHour, &r.QuotaDay, &r.QuotaMonth, &r.Burst, &r.Blocked,
		&r.BlockReason, &r.BlockedUntil, &r.UpdatedBy, &r.UpdatedAt, &r.digest, &r.owner, &r.keyTier, &r.limits,
		&r.expires, &r.revoked, &r.changedAt,
	}
}

// eachRow calls f with each row of a statement.
func eachRow(ctx context.Context, q database.Querier, sql string, args []any, f func(*row) error) error {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var r row
	_, err = pgx.ForEachRow(rows, r.to(), func() error { return f(&r) })
	return err
}

// errEnough ends the rows of a statement.
var errEnough = errors.New("enough")

// desired adds what a row makes to a list. What cannot be a profile is left out, and noted.
func (p *Publisher) desired(all []desired, r *row, now time.Time) []desired {
	add := func(s database.Subject, profile *profiles.Profile) {
		id, err := IdentityOf(s)
		if err != nil {
			p.leftOut.note(fmt.Errorf("the domain %q: %w", s.Domain, err))
			return
		}
		if profile != nil {
			profile.Control = true
		}
		all = append(all, desired{s, id, profile})
	}
	add(database.Subject{Domain: r.Domain, Kind: r.kind, Name: r.Name}, p.profileOf(r, now))
	if r.digest != nil {
		add(database.Subject{Domain: r.Domain, Kind: database.KindSecret, Name: *r.digest}, r.secret())
	}
	return all
}

// profileOf is the profile of a row, nil where nothing is to be known. The time of the row's last change makes it
// another text than all before it.
func (p *Publisher) profileOf(r *row, now time.Time) *profiles.Profile {
	profile := &profiles.Profile{By: r.UpdatedBy, At: r.UpdatedAt.UTC()}
	if r.Blocked && (r.BlockedUntil == nil || r.BlockedUntil.After(now)) {
		profile.Block = &profiles.Block{Reason: r.BlockReason, Until: instant(r.BlockedUntil)}
	}
	if r.digest == nil {
		profile.Tier, profile.Limits = textOf(r.Tier), database.Quotas(&r.User)
	} else {
		limits, err := limitsIn(r.limits)
		if err != nil {
			p.leftOut.note(fmt.Errorf("the limits of the key %q of the domain %q: %w", r.Name, r.Domain, err))
		}
		profile.Tier, profile.Limits = textOf(r.keyTier), limits
	}
	if profile.Tier == "" && profile.Block == nil && len(profile.Limits) == 0 {
		return nil
	}
	return profile
}

// secret is the profile of the digest of a key.
func (r *row) secret() *profiles.Profile {
	return &profiles.Profile{At: instant(r.changedAt), Key: &profiles.Key{
		ID: r.Name, User: textOf(r.owner), Tier: textOf(r.keyTier), Expires: instant(r.expires), Revoked: r.revoked,
	}}
}

// limitsIn reads limits as the database keeps them.
func limitsIn(text []byte) ([]profiles.Limit, error) {
	if string(text) == "[]" {
		return nil, nil
	}
	var written []profiles.LimitRequest
	err := json.Unmarshal(text, &written)
	if err != nil {
		return nil, err
	}
	return profiles.ReadLimits(written)
}

// instant is a time in UTC, zero for none.
func instant(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// textOf is a text, empty for none.
func textOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// desiredOf is what the database has about subjects, also where that is nothing. Those that no identity can have are
// left out.
func (p *Publisher) desiredOf(
	ctx context.Context, q database.Querier, subjects []database.Subject,
) (all []desired, err error) {
	var args [3][]string
	for _, s := range subjects {
		args[0], args[1], args[2] = append(args[0], s.Domain), append(args[1], s.Kind), append(args[2], s.Name)
	}
	const asked = `JOIN (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[]) AS a (d, k, n)) AS a ON `
	now, found := time.Now(), map[database.Subject]*desired{}
	for _, sql := range []string{ // each with its own index
		profileRows + asked + `p.domain = a.d AND p.kind = a.k AND p.name = a.n`,
		keyRows + asked + `a.k = 'api_key' AND k.domain = a.d AND k.id = a.n`,
		keyRows + asked + `a.k = 'secret' AND k.domain = a.d
		  AND k.digest = CASE WHEN a.k = 'secret' THEN decode(a.n, 'hex') END`,
	} {
		err = eachRow(ctx, q, sql, []any{args[0], args[1], args[2]}, func(r *row) error {
			for _, d := range p.desired(nil, r, now) {
				found[d.Subject] = &d
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read profiles from the database: %w", err)
		}
	}
	for _, s := range subjects {
		if d := found[s]; d != nil {
			all = append(all, *d)
			found[s] = nil
			continue
		}
		id, err := IdentityOf(s)
		_, given := found[s]
		if err == nil && !given {
			all, found[s] = append(all, desired{Subject: s, identity: id}), nil
		}
	}
	return slices.Clip(all), nil
}
