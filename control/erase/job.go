package erase

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
)

// openErasure is an erasure with whom it is about.
type openErasure struct {
	database.Erasure
	Name string
	Also *erasedKeys
}

// erasedKeys are the API keys of a person. They are kept until the erasure ends, because their rows go first.
type erasedKeys struct {
	IDs     []string `json:"ids"`
	Digests []string `json:"digests"` // in hex
}

// open is the open erasure that was asked for first, or nil.
func (x *Eraser) open(ctx context.Context) (*openErasure, error) {
	return database.One[openErasure](ctx, x.Database.Tasks, `SELECT `+database.ErasureColumns+`, name, also
	  FROM erasures WHERE state = 'open' ORDER BY id LIMIT 1`)
}

// gather adds the API keys of the person to the erasure.
func (x *Eraser) gather(ctx context.Context, e *openErasure) error {
	return pgx.BeginFunc(ctx, x.Database.Tasks, func(tx pgx.Tx) error {
		have := erasedKeys{}
		if e.Also != nil {
			have = *e.Also
		}
		if e.Kind == "api_key" {
			have.IDs = append(have.IDs, e.Name)
		}
		rows, err := tx.Query(ctx, `SELECT id, encode(digest, 'hex') FROM api_keys
		  WHERE domain = $1 AND ($2 = 'user' AND user_name = $3 OR $2 = 'api_key' AND id = $3)`,
			e.Domain, e.Kind, e.Name)
		if err != nil {
			return err
		}
		var id, digest string
		_, err = pgx.ForEachRow(rows, []any{&id, &digest}, func() error {
			have.IDs, have.Digests = append(have.IDs, id), append(have.Digests, digest)
			return nil
		})
		if err != nil {
			return err
		}
		have.IDs, have.Digests = distinct(have.IDs), distinct(have.Digests)
		e.Also = &have
		_, err = tx.Exec(ctx, `UPDATE erasures SET also = $2 WHERE id = $1`, e.ID, have)
		return err
	})
}

// finish ends an erasure, and takes the name out of it. Without anything left it is done.
func (x *Eraser) finish(ctx context.Context, e *openErasure) error {
	state := database.StateDone
	for _, p := range e.Places {
		if p.Left > 0 {
			state = database.StateLeft
		}
	}
	return x.Database.Write(ctx, database.Actor{Name: e.AskedBy}, "erased", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE erasures SET state = $2, name = NULL, also = NULL, finished_at = now(),
		  problem = $3, places = $4 WHERE id = $1`, e.ID, state, e.Problem, e.Places)
		if err != nil {
			return err
		}
		after := map[string]any{"erasure": e.ID, "state": state, "places": e.Places}
		return database.LogErasure(ctx, tx, "erased", &e.Erasure, after)
	})
}

// postpone keeps why an erasure is not done yet.
func (x *Eraser) postpone(ctx context.Context, e *openErasure, why error) error {
	_, err := x.Database.Tasks.Exec(ctx, `UPDATE erasures SET problem = $2, places = $3 WHERE id = $1`,
		e.ID, why.Error(), e.Places)
	if err != nil {
		return fmt.Errorf("note that erasure %d continues later: %w", e.ID, err)
	}
	return nil
}
