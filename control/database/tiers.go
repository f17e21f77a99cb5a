package database

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/profiles"
)

// Tier is a plan that users and API keys are on.
type Tier struct {
	Domain      string                  `json:"domain"`
	Name        string                  `json:"name"`
	DisplayName string                  `json:"display_name"`
	Limits      []profiles.LimitRequest `json:"limits"` // of each user of the tier; none: those of the rules alone
	Price       *float64                `json:"price"`
	Rank        int32                   `json:"rank"` // lists are in this order
	Revision    int64                   `json:"revision" etag:""`
	UpdatedBy   string                  `json:"updated_by"`
	UpdatedAt   time.Time               `json:"updated_at"`
}

// TierRequest is what a tier shall be.
type TierRequest struct {
	DisplayName string                  `json:"display_name,omitempty"`
	Limits      []profiles.LimitRequest `json:"limits,omitempty"`
	Price       *float64                `json:"price,omitempty"`
	Rank        int64                   `json:"rank,omitempty"`
}

const tierColumns = `domain, name, display_name, limits, price::float8 AS price, rank, revision, updated_by, updated_at`

// tierLock selects the row that a change is about.
const tierLock = `SELECT revision FROM tiers WHERE domain = @domain AND name = @name`

// Tiers are those of a domain, in their order.
func (d *DB) Tiers(ctx context.Context, domain string) ([]Tier, error) {
	return TiersOf(ctx, d.reads, domain)
}

// TiersOf is Tiers by a connection of the caller.
func TiersOf(ctx context.Context, q Querier, domain string) ([]Tier, error) {
	return Many[Tier](ctx, q, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 ORDER BY rank, name`, domain)
}

// Tier is one tier.
func (d *DB) Tier(ctx context.Context, domain, name string) (*Tier, error) {
	return found(
		One[Tier](ctx, d.reads, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 AND name = $2`, domain, name))
}

// found turns nothing into ErrNotFound.
func found[T any](row *T, err error) (*T, error) {
	if err == nil && row == nil {
		return nil, ErrNotFound
	}
	return row, err
}

// SetTier makes a tier what it shall be. The error is a *Refused where its limits do not compile.
func (d *DB) SetTier(
	ctx context.Context, by Actor, domain, name string, r TierRequest, want *int64,
) (after *Tier, err error) {
	text, err := TierRules(domain, []Tier{{Name: name, Limits: r.Limits}})
	if err == nil && text != "" {
		_, err = checkText(domain, text)
	}
	if err != nil {
		return nil, err
	}
	err = makeDomain(ctx, d.changes, by, domain)
	if err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{
		"domain": domain, "name": name, "display": r.DisplayName, "limits": listed(r.Limits), "price": r.Price,
		"rank": r.Rank,
	}
	err = d.Write(ctx, by, "set", func(tx pgx.Tx) error {
		after, err = put(ctx, tx, want, tierLock, `
		  INSERT INTO tiers (domain, name, display_name, limits, price, rank)
		  VALUES (@domain, @name, @display, @limits, @price::float8::numeric, @rank::bigint)
		  ON CONFLICT (domain, name) DO UPDATE SET display_name = excluded.display_name, limits = excluded.limits,
		  price = excluded.price, rank = excluded.rank
		  RETURNING `+tierColumns, args, func(t *Tier) int64 { return t.Revision })
		return err
	})
	return after, err
}

// DeleteTier removes a tier that no user and no key is on.
func (d *DB) DeleteTier(ctx context.Context, by Actor, domain, name string, want *int64) error {
	args := pgx.NamedArgs{"domain": domain, "name": name}
	err := d.Write(ctx, by, "delete", func(tx pgx.Tx) error {
		return remove(ctx, tx, want, tierLock, `DELETE FROM tiers WHERE domain = @domain AND name = @name`, args)
	})
	err = used(err, tierOfProfile, "tier %q is in use: spillway users list --tier %s shows its users", name, name)
	return used(err, tierOfKey, "tier %q is in use by API keys: spillway keys list shows them", name)
}

// TierRules is the rule file that the limits of tiers make: each is a rule that counts by user. It is empty where no
// tier has limits.
func TierRules(domain string, tiers []Tier) (string, error) {
	type rule struct {
		Name   string              `json:"name"`
		Scope  string              `json:"scope"`
		Match  map[string][]string `json:"match"`
		Limits []any               `json:"limits"`
	}
	var all []rule
	for _, t := range tiers {
		if len(t.Limits) == 0 {
			continue
		}
		r := rule{Name: "tier:" + t.Name, Scope: "user", Match: map[string][]string{"tiers": {t.Name}}}
		for _, l := range t.Limits {
			if l.Unlimited != nil && *l.Unlimited {
				r.Limits = append(r.Limits, "unlimited")
				continue
			}
			r.Limits = append(r.Limits, l)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(map[string]any{"domain": domain, "rules": all})
	if err != nil {
		return "", fmt.Errorf("write the limits of the tiers: %w", err)
	}
	return string(text), nil
}
