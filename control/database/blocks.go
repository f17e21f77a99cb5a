package database

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Block refuses all requests of an identity.
type Block struct {
	Domain    string     `json:"domain"`
	Kind      string     `json:"kind"` // user, tenant, ip or api_key
	Name      string     `json:"name"`
	Reason    string     `json:"reason"`
	Until     *time.Time `json:"until"`
	Revision  int64      `json:"revision" etag:""` // of the user, where it is one
	UpdatedBy string     `json:"updated_by"`
	UpdatedAt time.Time  `json:"updated_at"`
}

// BlockRequest is what a block shall be.
type BlockRequest struct {
	Reason string     `json:"reason,omitempty"` // shown to the client
	Until  *time.Time `json:"until,omitempty"`  // none: for ever
}

const blockColumns = `domain, kind, name, reason, until, revision, updated_by, updated_at`

// Blocks are those of a domain that are in force, whose kind and name are behind those given, in that order.
func (d *DB) Blocks(ctx context.Context, domain, afterKind, afterName string, count int) ([]Block, error) {
	return Many[Block](ctx, d.urgent, `SELECT `+blockColumns+` FROM blocks
	  WHERE domain = $1 AND (kind, name) > ($2, $3) AND (until IS NULL OR until > now())
	  ORDER BY kind, name LIMIT $4`, domain, afterKind, afterName, count)
}

// Block is the block of an identity.
func (d *DB) Block(ctx context.Context, domain, kind, name string) (*Block, error) {
	return found(One[Block](ctx, d.urgent, `SELECT `+blockColumns+` FROM blocks
	  WHERE domain = $1 AND kind = $2 AND name = $3`, domain, kind, name))
}

// SetBlock blocks an identity.
func (d *DB) SetBlock(ctx context.Context, by Actor, s Subject, r BlockRequest, want *int64) (after *Block, err error) {
	err = makeDomain(ctx, d.urgent, by, s.Domain)
	if err != nil {
		return nil, err
	}
	args := pgx.NamedArgs{"domain": s.Domain, "kind": s.Kind, "name": s.Name, "reason": r.Reason, "until": r.Until}
	err = d.urgently(ctx, by, "block", func(tx pgx.Tx) error {
		after, err = put(ctx, tx, want, profileLock, `
		  INSERT INTO profiles (domain, kind, name, block_only, blocked, block_reason, blocked_until)
		  VALUES (@domain, @kind, @name, true, true, @reason, @until) ON CONFLICT (domain, kind, name) DO UPDATE
		  SET blocked = true, block_reason = excluded.block_reason, blocked_until = excluded.blocked_until
		  RETURNING domain, kind, name, block_reason AS reason, blocked_until AS until, revision, updated_by,
		  updated_at`,
			args, func(b *Block) int64 { return b.Revision })
		return err
	})
	return after, err
}

// Unblock ends a block. What else is known of a user stays.
func (d *DB) Unblock(ctx context.Context, by Actor, s Subject, want *int64) error {
	args := pgx.NamedArgs{"domain": s.Domain, "kind": s.Kind, "name": s.Name}
	return d.urgently(ctx, by, "unblock", func(tx pgx.Tx) error {
		return remove(ctx, tx, want, profileLock+` AND blocked`,
			`DELETE FROM blocks WHERE domain = @domain AND kind = @kind AND name = @name`, args)
	})
}

// TakeOver takes over what a sidecar has changed at a time: the block of an identity, or, without one, its end. It
// reports false where the database has changed the block since, and Redis does not have that yet.
func (d *DB) TakeOver(
	ctx context.Context, by Actor, s Subject, at time.Time, block *BlockRequest,
) (done bool, err error) {
	args := pgx.NamedArgs{"domain": s.Domain, "kind": s.Kind, "name": s.Name, "at": at}
	action, sql := "unblock", `DELETE FROM blocks WHERE domain = @domain AND kind = @kind AND name = @name`
	if block != nil {
		action, sql = "block", `INSERT INTO blocks (domain, kind, name, reason, until)
		  SELECT @domain, @kind, @name, @reason, @until::timestamptz WHERE NOT EXISTS (SELECT FROM blocks
		    WHERE domain = @domain AND kind = @kind AND name = @name AND reason = @reason
		    AND until IS NOT DISTINCT FROM @until::timestamptz)`
		args["reason"], args["until"] = block.Reason, block.Until
	}
	err = d.urgently(ctx, by, action, func(tx pgx.Tx) error {
		// one after the other
		_, err := tx.Exec(ctx, `SELECT FROM domains WHERE name = @domain FOR NO KEY UPDATE`, args)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM audit
		  WHERE domain = @domain AND kind = @kind AND name = @name AND done_at IS NULL AND at > @at
		  AND (coalesce(before->'blocked', 'false'), before->'block_reason', before->'blocked_until') IS DISTINCT FROM
		    (coalesce(after->'blocked', 'false'), after->'block_reason', after->'blocked_until'))`, args).Scan(&done)
		if err == nil && done {
			_, err = tx.Exec(ctx, sql, args)
		}
		return err
	})
	return done, err
}
