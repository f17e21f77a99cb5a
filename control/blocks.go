package control

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
	Revision  int64      `json:"revision"` // of the user, where it is one
	UpdatedBy string     `json:"updated_by"`
	UpdatedAt time.Time  `json:"updated_at"`
}

// BlockRequest is what a block shall be.
type BlockRequest struct {
	Reason string     `json:"reason,omitempty"` // shown to the client
	Until  *time.Time `json:"until,omitempty"`  // none: for ever
}

const (
	blockColumns = `domain, kind, name, reason, until, revision, updated_by, updated_at`
	allBlocks    = `(SELECT ` + blockColumns + ` FROM blocks UNION ALL
	  SELECT domain, 'user', name, block_reason, blocked_until, revision, updated_by, updated_at FROM users WHERE blocked) AS all_blocks`
	kindUser = "user"
)

// Blocks are those of a domain that are in force, whose kind and name are behind those given, in that order.
func (d *Database) Blocks(ctx context.Context, domain, afterKind, afterName string, count int) ([]Block, error) {
	return many[Block](ctx, d.blocks, `SELECT `+blockColumns+` FROM `+allBlocks+` WHERE domain = $1 AND (kind, name) > ($2, $3) AND (until IS NULL OR until > now())
	  ORDER BY kind, name LIMIT $4`, domain, afterKind, afterName, count)
}

// Block is the block of an identity.
func (d *Database) Block(ctx context.Context, domain, kind, name string) (*Block, error) {
	return found(one[Block](ctx, d.blocks, `SELECT `+blockColumns+` FROM `+allBlocks+` WHERE domain = $1 AND kind = $2 AND name = $3`, domain, kind, name))
}

// SetBlock blocks an identity.
func (d *Database) SetBlock(ctx context.Context, who Actor, about Subject, r BlockRequest, c Condition) (after *Block, err error) {
	if about.Kind == kindUser {
		u, err := d.setBlock(ctx, who, "block", about, BlockRequest{r.Reason, r.Until}, true, c)
		if err != nil {
			return nil, err
		}
		return &Block{u.Domain, kindUser, u.Name, u.BlockReason, u.BlockedUntil, u.Revision, u.UpdatedBy, u.UpdatedAt}, nil
	}
	err = makeDomain(ctx, d.blocks, who, about.Domain)
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
		after, err = one[Block](ctx, tx, `INSERT INTO blocks (domain, kind, name, reason, until, updated_by) VALUES ($1, $2, $3, $4, $5, $6)
		  ON CONFLICT (domain, kind, name) DO UPDATE SET reason = excluded.reason, until = excluded.until, updated_by = excluded.updated_by, updated_at = now(),
		  revision = blocks.revision + 1 RETURNING `+blockColumns, about.Domain, about.Kind, about.Name, r.Reason, r.Until, who.Name)
		if err == nil && before == nil {
			err = c.made(after.Revision)
		}
		return orNil(before), after, err
	})
	return after, err
}

func blockForUpdate(ctx context.Context, tx pgx.Tx, about Subject) (*Block, error) {
	return one[Block](ctx, tx, `SELECT `+blockColumns+` FROM blocks WHERE domain = $1 AND kind = $2 AND name = $3 FOR UPDATE`, about.Domain, about.Kind, about.Name)
}

// Unblock ends a block.
func (d *Database) Unblock(ctx context.Context, who Actor, about Subject, c Condition) error {
	if about.Kind == kindUser {
		u, err := found(one[User](ctx, d.blocks, userSelect, about.Domain, about.Name))
		if err != nil {
			return err
		}
		if !u.Blocked {
			return errNotFound
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

// Entry is one line of the audit.
type Entry struct {
	ID      int64          `json:"id"`
	At      time.Time      `json:"at"`
	Who     string         `json:"who"`
	Address string         `json:"address"`
	Action  string         `json:"action"`
	Domain  string         `json:"domain"`
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Before  map[string]any `json:"before"` // null: there was nothing
	After   map[string]any `json:"after"`  // null: there is nothing
}

// Audit is the lines about a subject, the newest first, with ids below before; 0: from the newest on. Empty fields of the subject match
// all, but for lines of domains that are not among some, nil for all.
func (d *Database) Audit(ctx context.Context, domains []string, about Subject, before int64, count int) ([]Entry, error) {
	return many[Entry](ctx, d.reads, `SELECT id, at, who, address, action, domain, kind, name, before, after FROM audit
	  WHERE ($1 = '' OR domain = $1) AND ($2 = '' OR kind = $2) AND ($3 = '' OR name = $3) AND ($4::bigint = 0 OR id < $4) AND ($6::text[] IS NULL OR domain = ANY ($6))
	  ORDER BY id DESC LIMIT $5`, about.Domain, about.Kind, about.Name, before, count, domains)
}
