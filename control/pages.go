package control

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/records"
)

// pages returns the next records of a table as they have to be; none at the end.
type pages func(context.Context) ([]records.Wanted, error)

// walks are all tables that make records, blocks first.
func walks(q querier) []pages {
	return []pages{userPages(q, "AND blocked"), blockPages(q), keyPages(q), userPages(q, ""), deletedPages(q)}
}

// userPages are users, with a condition more.
func userPages(q querier, condition string) pages {
	sql := `SELECT domain, name, tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until, updated_by, updated_at
	  FROM users WHERE (domain, name) > ($1, $2) ` + condition + ` ORDER BY domain, name LIMIT $3`
	var last User
	return func(ctx context.Context) (all []records.Wanted, err error) {
		rows, err := q.Query(ctx, sql, last.Domain, last.Name, walkPage)
		if err != nil {
			return nil, err
		}
		all = make([]records.Wanted, 0, walkPage)
		u, now := &last, time.Now()
		to := []any{&u.Domain, &u.Name, &u.Tier, &u.QuotaHour, &u.QuotaDay, &u.QuotaMonth, &u.Burst, &u.Blocked, &u.BlockReason, &u.BlockedUntil, &u.UpdatedBy, &u.UpdatedAt}
		_, err = pgx.ForEachRow(rows, to, func() error {
			all = append(all, kept(records.Identity{Domain: u.Domain, Kind: records.User, Name: u.Name}, userRecord(u, now)))
			return nil
		})
		return all, err
	}
}

// keyPages are API keys: the records of their digests and of their ids.
func keyPages(q querier) pages {
	const sql = `SELECT k.domain, k.id, encode(k.digest, 'hex'), k.user_name, k.tier, k.limits, k.expires_at, k.revoked_at IS NOT NULL,
	  b.name IS NOT NULL, coalesce(b.reason, ''), b.until, coalesce(b.updated_by, ''), coalesce(b.updated_at, now())
	  FROM api_keys k LEFT JOIN blocks b ON b.domain = k.domain AND b.kind = 'api_key' AND b.name = k.id AND (b.until IS NULL OR b.until > $4)
	  WHERE (k.domain, k.id) > ($1, $2) ORDER BY k.domain, k.id LIMIT $3`
	var k walkedKey
	return func(ctx context.Context) (all []records.Wanted, err error) {
		rows, err := q.Query(ctx, sql, k.Domain, k.ID, walkPage, time.Now())
		if err != nil {
			return nil, err
		}
		b := &k.block
		to := []any{&k.Domain, &k.ID, &k.Digest, &k.UserName, &k.Tier, &k.limits, &k.ExpiresAt, &k.Revoked, &k.blocked, &b.Reason, &b.Until, &b.UpdatedBy, &b.UpdatedAt}
		_, err = pgx.ForEachRow(rows, to, func() error {
			own, err := k.own()
			all = append(all, kept(records.Identity{Domain: k.Domain, Kind: records.Secret, Name: k.Digest}, k.secret()),
				kept(records.Identity{Domain: k.Domain, Kind: records.APIKey, Name: k.ID}, own))
			return err
		})
		return all, err
	}
}

// walkedKey is an API key with the block of its id.
type walkedKey struct {
	keyRow
	limits  []byte // as JSON
	blocked bool
	block   Block
}

// own is the record of the id, nil for none.
func (k *walkedKey) own() (*records.Record, error) {
	k.Limits = nil
	if string(k.limits) != "[]" {
		err := json.Unmarshal(k.limits, &k.Limits)
		if err != nil {
			return nil, fmt.Errorf("the limits of the key %q: %w", k.ID, err)
		}
	}
	r, err := k.keyRow.own()
	if err == nil && k.blocked {
		if r == nil {
			r = &records.Record{}
		}
		k.block.addTo(r)
	}
	return r, err
}

// blockPages are blocks of what is not a user.
func blockPages(q querier) pages {
	var last Subject
	return func(ctx context.Context) ([]records.Wanted, error) {
		some, err := many[Subject](ctx, q, `SELECT domain, kind, name FROM blocks WHERE (domain, kind, name) > ($1, $2, $3) ORDER BY domain, kind, name LIMIT $4`,
			last.Domain, last.Kind, last.Name, walkPage)
		if err != nil || len(some) == 0 {
			return nil, err
		}
		last = some[len(some)-1]
		return wanted(ctx, q, some, time.Now())
	}
}

// deletedPages are what changes of the last days name and no other table has: it was deleted.
func deletedPages(q querier) pages {
	const sql = `SELECT DISTINCT domain, kind, name FROM outbox o WHERE id > $1 AND id <= $2 AND done_at IS NOT NULL AND kind NOT IN ('rules', 'load')
	  AND NOT EXISTS (SELECT FROM users u WHERE o.kind = 'user' AND u.domain = o.domain AND u.name = o.name)
	  AND NOT EXISTS (SELECT FROM api_keys k WHERE o.kind = 'api_key' AND k.domain = o.domain AND k.id = o.name)
	  AND NOT EXISTS (SELECT FROM api_keys k WHERE o.kind = 'secret' AND k.domain = o.domain AND k.digest = CASE WHEN o.kind = 'secret' THEN decode(o.name, 'hex') END)
	  AND NOT EXISTS (SELECT FROM blocks b WHERE b.domain = o.domain AND b.kind = o.kind AND b.name = o.name)`
	var after int64
	return func(ctx context.Context) ([]records.Wanted, error) {
		for {
			last, err := one[struct{ ID *int64 }](ctx, q, `SELECT max(id) AS id FROM (SELECT id FROM outbox WHERE done_at IS NOT NULL AND id > $1 ORDER BY id LIMIT $2) AS ids`, after, walkPage)
			if err != nil || last.ID == nil {
				return nil, err
			}
			some, err := many[Subject](ctx, q, sql, after, *last.ID)
			if err != nil {
				return nil, err
			}
			after = *last.ID
			if len(some) > 0 {
				return wanted(ctx, q, some, time.Now())
			}
		}
	}
}
