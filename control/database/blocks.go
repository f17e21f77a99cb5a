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

const (
	BlockColumns = `domain, kind, name, reason, until, revision, updated_by, updated_at`
	allBlocks    = `(SELECT ` + BlockColumns + ` FROM blocks UNION ALL
	  SELECT domain, 'user', name, block_reason, blocked_until, revision, updated_by, updated_at FROM users WHERE blocked) AS all_blocks`
	KindUser = "user"
)

// Blocks are those of a domain that are in force, whose kind and name are behind those given, in that order.
func (d *DB) Blocks(ctx context.Context, domain, afterKind, afterName string, count int) ([]Block, error) {
	return Many[Block](ctx, d.urgent, `SELECT `+BlockColumns+` FROM `+allBlocks+` WHERE domain = $1 AND (kind, name) > ($2, $3) AND (until IS NULL OR until > now())
	  ORDER BY kind, name LIMIT $4`, domain, afterKind, afterName, count)
}

// Block is the block of an identity.
func (d *DB) Block(ctx context.Context, domain, kind, name string) (*Block, error) {
	return found(One[Block](ctx, d.urgent, `SELECT `+BlockColumns+` FROM `+allBlocks+` WHERE domain = $1 AND kind = $2 AND name = $3`, domain, kind, name))
}

// SetBlock blocks an identity.
func (d *DB) SetBlock(ctx context.Context, who Actor, about Subject, r BlockRequest, c Condition) (after *Block, err error) {
	if about.Kind == KindUser {
		u, err := d.setBlock(ctx, who, "block", about, BlockRequest{r.Reason, r.Until}, true, c)
		if err != nil {
			return nil, err
		}
		return &Block{u.Domain, KindUser, u.Name, u.BlockReason, u.BlockedUntil, u.Revision, u.UpdatedBy, u.UpdatedAt}, nil
	}
	err = makeDomain(ctx, d.urgent, who, about.Domain)
	if err != nil {
		return nil, err
	}
	err = d.changeBlock(ctx, who, "block", about, func(tx pgx.Tx) (any, any, error) {
		before, err := blockForUpdate(ctx, tx, about)
		if err != nil {
			return nil, nil, err
		}
		err = c.check(revisionOf(before, func(b *Block) int64 { return b.Revision }))
		if err != nil {
			return nil, nil, err
		}
		after, err = One[Block](ctx, tx, `INSERT INTO blocks (domain, kind, name, reason, until, updated_by) VALUES ($1, $2, $3, $4, $5, $6)
		  ON CONFLICT (domain, kind, name) DO UPDATE SET reason = excluded.reason, until = excluded.until, updated_by = excluded.updated_by, updated_at = now(),
		  revision = blocks.revision + 1 RETURNING `+BlockColumns, about.Domain, about.Kind, about.Name, r.Reason, r.Until, who.Name)
		if err == nil && before == nil {
			err = c.made(after.Revision)
		}
		return orNil(before), after, err
	})
	return after, err
}

func blockForUpdate(ctx context.Context, tx pgx.Tx, about Subject) (*Block, error) {
	return One[Block](ctx, tx, `SELECT `+BlockColumns+` FROM blocks WHERE domain = $1 AND kind = $2 AND name = $3 FOR UPDATE`, about.Domain, about.Kind, about.Name)
}

// Unblock ends a block.
func (d *DB) Unblock(ctx context.Context, who Actor, about Subject, c Condition) error {
	if about.Kind == KindUser {
		u, err := found(One[User](ctx, d.urgent, userSelect, about.Domain, about.Name))
		if err != nil {
			return err
		}
		if !u.Blocked {
			return ErrNotFound
		}
		_, err = d.setBlock(ctx, who, "unblock", about, BlockRequest{}, false, c)
		return err
	}
	return d.changeBlock(ctx, who, "unblock", about, func(tx pgx.Tx) (any, any, error) {
		before, err := found(blockForUpdate(ctx, tx, about))
		if err == nil {
			err = c.check(before.Revision)
		}
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM blocks WHERE domain = $1 AND kind = $2 AND name = $3`, about.Domain, about.Kind, about.Name)
		}
		return before, nil, err
	})
}
