package publish

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/records"
)

// pages are the records of a table as they have to be, walkPage or more at a time.
type pages func(context.Context) iter.Seq2[[]records.Wanted, error]

// walks are all tables that make records, blocks first.
func walks(q source) []pages {
	return []pages{userPages(q, "WHERE blocked"), blockPages(q), keyPages(q), userPages(q, ""), deletedPages(q)}
}

// whole is the pages of all rows of one statement: PostgreSQL reads them in the order in which they lie, with a fifth of the work of a statement for each
// page. Each row is read into to; add appends its records.
func whole(q database.Querier, sql string, args, to []any, add func([]records.Wanted) []records.Wanted) pages {
	return func(ctx context.Context) iter.Seq2[[]records.Wanted, error] {
		return func(yield func([]records.Wanted, error) bool) {
			rows, err := q.Query(ctx, sql, args...)
			if err != nil {
				yield(nil, err)
				return
			}
			var all []records.Wanted
			_, err = pgx.ForEachRow(rows, to, func() error {
				all = add(slices.Grow(all, walkPage-len(all)))
				if len(all) < walkPage {
					return nil
				}
				if !yield(all, nil) {
					return errEnough
				}
				all = nil
				return nil
			})
			if !errors.Is(err, errEnough) && (err != nil || len(all) > 0) {
				yield(all, err)
			}
		}
	}
}

// errEnough says that no more pages are wanted.
var errEnough = errors.New("enough")

// userPages are users, with a condition.
func userPages(q database.Querier, condition string) pages {
	var u database.User
	var domain, by same
	now := time.Now()
	to := []any{&domain, &u.Name, &u.Tier, &u.QuotaHour, &u.QuotaDay, &u.QuotaMonth, &u.Burst, &u.Blocked, &u.BlockReason, &u.BlockedUntil, &by, &u.UpdatedAt}
	return whole(q, `SELECT domain, name, tier, quota_hour, quota_day, quota_month, burst, blocked, block_reason, blocked_until, updated_by, updated_at FROM users `+condition, nil, to,
		func(all []records.Wanted) []records.Wanted {
			u.Domain, u.UpdatedBy = string(domain), string(by)
			return append(all, kept(records.Identity{Domain: u.Domain, Kind: records.User, Name: u.Name}, userRecord(&u, now)))
		})
}

// same is a text that is the same in many rows: it takes memory only where it is another one than before.
type same string

// ScanBytes reads it.
func (s *same) ScanBytes(text []byte) error {
	if string(*s) != string(text) {
		*s = same(text)
	}
	return nil
}

// keyPages are API keys: the records of their digests and of their ids.
func keyPages(q source) pages {
	const sql = `SELECT k.domain, k.id, encode(k.digest, 'hex'), k.user_name, k.tier, k.limits, k.expires_at, k.revoked_at IS NOT NULL,
	  b.name IS NOT NULL, coalesce(b.reason, ''), b.until, coalesce(b.updated_by, ''), coalesce(b.updated_at, now())
	  FROM api_keys k LEFT JOIN blocks b ON b.domain = k.domain AND b.kind = 'api_key' AND b.name = k.id AND (b.until IS NULL OR b.until > $1)`
	var k walkedKey
	b := &k.block
	to := []any{&k.Domain, &k.ID, &k.Digest, &k.UserName, &k.Tier, &k.Limits, &k.ExpiresAt, &k.Revoked, &k.blocked, &b.Reason, &b.Until, &b.UpdatedBy, &b.UpdatedAt}
	return whole(q, sql, []any{time.Now()}, to, func(all []records.Wanted) []records.Wanted {
		return append(all, kept(records.Identity{Domain: k.Domain, Kind: records.Secret, Name: k.Digest}, k.secret()),
			kept(records.Identity{Domain: k.Domain, Kind: records.APIKey, Name: k.ID}, k.own(q.unfit)))
	})
}

// walkedKey is an API key with the block of its id.
type walkedKey struct {
	keyRow
	blocked bool
	block   database.Block
}

// own is the record of the id, nil for none.
func (k *walkedKey) own(unfit func(error)) *records.Record {
	r := k.keyRow.own(unfit)
	if k.blocked {
		if r == nil {
			r = &records.Record{}
		}
		addBlock(r, &k.block)
	}
	return r
}

// blockPages are blocks of what is not a user.
func blockPages(q source) pages {
	var last database.Subject
	return parts(func(ctx context.Context) (all []records.Wanted, more bool, err error) {
		some, err := database.Many[database.Subject](ctx, q, `SELECT domain, kind, name FROM blocks WHERE (domain, kind, name) > ($1, $2, $3) ORDER BY domain, kind, name LIMIT $4`,
			last.Domain, last.Kind, last.Name, walkPage)
		if err != nil || len(some) == 0 {
			return nil, false, err
		}
		last = some[len(some)-1]
		all, err = wanted(ctx, q, some, time.Now())
		return all, true, err
	})
}

// parts is pages of which each is read by statements of its own, as long as there are more.
func parts(read func(context.Context) (all []records.Wanted, more bool, err error)) pages {
	return func(ctx context.Context) iter.Seq2[[]records.Wanted, error] {
		return func(yield func([]records.Wanted, error) bool) {
			for {
				all, more, err := read(ctx)
				if err == nil && !more || !yield(all, err) || err != nil {
					return
				}
			}
		}
	}
}

// deletedPages are what changes of the last days name and no other table has: it was deleted.
func deletedPages(q source) pages {
	const sql = `SELECT DISTINCT domain, kind, name FROM outbox o WHERE id > $1 AND id <= $2 AND done_at IS NOT NULL AND kind NOT IN ('rules', 'load')
	  AND NOT EXISTS (SELECT FROM users u WHERE o.kind = 'user' AND u.domain = o.domain AND u.name = o.name)
	  AND NOT EXISTS (SELECT FROM api_keys k WHERE o.kind = 'api_key' AND k.domain = o.domain AND k.id = o.name)
	  AND NOT EXISTS (SELECT FROM api_keys k WHERE o.kind = 'secret' AND k.domain = o.domain AND k.digest = CASE WHEN o.kind = 'secret' THEN decode(o.name, 'hex') END)
	  AND NOT EXISTS (SELECT FROM blocks b WHERE b.domain = o.domain AND b.kind = o.kind AND b.name = o.name)`
	var after int64
	return parts(func(ctx context.Context) (all []records.Wanted, more bool, err error) {
		last, err := database.One[struct{ ID *int64 }](ctx, q, `SELECT max(id) AS id FROM (SELECT id FROM outbox WHERE done_at IS NOT NULL AND id > $1 ORDER BY id LIMIT $2) AS ids`, after, walkPage)
		if err != nil || last.ID == nil {
			return nil, false, err
		}
		some, err := database.Many[database.Subject](ctx, q, sql, after, *last.ID)
		if err != nil {
			return nil, false, err
		}
		after = *last.ID
		if len(some) > 0 {
			all, err = wanted(ctx, q, some, time.Now())
		}
		return all, true, err
	})
}
