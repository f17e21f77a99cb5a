package database

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/admin"
)

// Tier is a plan that users and API keys are on.
type Tier struct {
	Domain      string           `json:"domain"`
	Name        string           `json:"name"`
	DisplayName string           `json:"display_name"`
	Limits      []admin.NewLimit `json:"limits"` // of each user of the tier; none: those of the rules alone
	Price       *float64         `json:"price"`
	Rank        int32            `json:"rank"` // lists are in this order
	Revision    int64            `json:"revision" etag:""`
	UpdatedBy   string           `json:"updated_by"`
	UpdatedAt   time.Time        `json:"updated_at"`
}

// TierRequest is what a tier shall be.
type TierRequest struct {
	DisplayName string           `json:"display_name,omitempty"`
	Limits      []admin.NewLimit `json:"limits,omitempty"`
	Price       *float64         `json:"price,omitempty"`
	Rank        admin.Whole      `json:"rank,omitempty"`
}

const tierColumns = `domain, name, display_name, limits, price::float8 AS price, rank, revision, updated_by, updated_at`

// Tiers are those of a domain, in their order.
func (d *DB) Tiers(ctx context.Context, domain string) ([]Tier, error) {
	return TiersOf(ctx, d.reads, domain)
}

func TiersOf(ctx context.Context, q Querier, domain string) ([]Tier, error) {
	return Many[Tier](ctx, q, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 ORDER BY rank, name`, domain)
}

// Tier is one tier.
func (d *DB) Tier(ctx context.Context, domain, name string) (*Tier, error) {
	return found(One[Tier](ctx, d.reads, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 AND name = $2`, domain, name))
}

// found turns nothing into errNotFound.
func found[T any](row *T, err error) (*T, error) {
	if err == nil && row == nil {
		return nil, ErrNotFound
	}
	return row, err
}

// SetTier makes a tier what it shall be. The error is a *Refused where its limits do not compile.
func (d *DB) SetTier(ctx context.Context, who Actor, domain, name string, r TierRequest, c Condition) (after *Tier, err error) {
	text, err := TierRules(domain, []Tier{{Name: name, Limits: r.Limits}})
	if err == nil && text != "" {
		_, err = checkText(domain, text)
	}
	if err != nil {
		return nil, err
	}
	err = makeDomain(ctx, d.Changes, who, domain)
	if err != nil {
		return nil, err
	}
	limits := AsJSON(append([]admin.NewLimit{}, r.Limits...))
	err = d.change(ctx, who, "set", Subject{domain, "tier", name}, func(tx pgx.Tx) (any, any, error) {
		before, err := One[Tier](ctx, tx, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 AND name = $2 FOR UPDATE`, domain, name)
		if err != nil {
			return nil, nil, err
		}
		err = c.check(revisionOf(before, func(t *Tier) int64 { return t.Revision }))
		if err != nil {
			return nil, nil, err
		}
		after, err = One[Tier](ctx, tx, `INSERT INTO tiers (domain, name, display_name, limits, price, rank, updated_by) VALUES ($1, $2, $3, $4, $5::float8::numeric, $6::bigint, $7)
		  ON CONFLICT (domain, name) DO UPDATE SET display_name = excluded.display_name, limits = excluded.limits, price = excluded.price, rank = excluded.rank,
		  updated_by = excluded.updated_by, updated_at = now(), revision = tiers.revision + 1 RETURNING `+tierColumns,
			domain, name, r.DisplayName, limits, r.Price, int64(r.Rank), who.Name)
		if err == nil && before == nil {
			err = c.made(after.Revision)
		}
		return orNil(before), after, err
	})
	return after, err
}

// DeleteTier removes a tier that no user and no key is on.
func (d *DB) DeleteTier(ctx context.Context, who Actor, domain, name string, c Condition) error {
	return d.change(ctx, who, "delete", Subject{domain, "tier", name}, func(tx pgx.Tx) (any, any, error) {
		before, err := found(One[Tier](ctx, tx, `SELECT `+tierColumns+` FROM tiers WHERE domain = $1 AND name = $2 FOR UPDATE`, domain, name))
		if err == nil {
			err = c.check(before.Revision)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM tiers WHERE domain = $1 AND name = $2`, domain, name)
		}
		return before, nil, err
	})
}

// revisionOf is the revision of a row, 0 for none.
func revisionOf[T any](row *T, of func(*T) int64) int64 {
	if row == nil {
		return 0
	}
	return of(row)
}

// orNil is a row for the audit, nil for none.
func orNil[T any](row *T) any {
	if row == nil {
		return nil
	}
	return row
}

// TierRules is the rule file that the limits of tiers make: each is a rule that counts by user. It is empty where no tier has limits.
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
