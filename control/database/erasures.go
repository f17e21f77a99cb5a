package database

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Erasure is a request to erase what is known of one identity, and what came of it. It does not show whom.
type Erasure struct {
	ID         int64         `json:"id"`
	Domain     string        `json:"domain"`
	Kind       string        `json:"kind"`
	State      string        `json:"state"` // open; done: nothing is left; left: something is
	AskedBy    string        `json:"asked_by"`
	AskedAt    time.Time     `json:"asked_at"`
	FinishedAt *time.Time    `json:"finished_at"`
	Problem    string        `json:"problem"` // why it is not done yet, or what is left
	Places     []ErasedPlace `json:"places"`
}

// ErasedPlace is a place that was searched.
type ErasedPlace struct {
	Place   string `json:"place"`
	Removed int64  `json:"removed"`
	Left    int64  `json:"left"` // that a second search found
}

// The columns of an erasure, and the states of one that has ended: nothing of the person is left, or something is.
const (
	ErasureColumns = `id, domain, kind, state, asked_by, asked_at, finished_at, problem, places`
	StateDone      = "done"
	StateLeft      = "left"
)

// AskErasure asks for an erasure. Where the same one is open it returns that one. The audit shows its number and no
// name.
func (d *DB) AskErasure(ctx context.Context, by Actor, about Subject) (asked *Erasure, err error) {
	err = d.Write(ctx, by, "erase", func(tx pgx.Tx) error {
		_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('erasures', 0))`)
		if err == nil {
			asked, err = One[Erasure](ctx, tx, `SELECT `+ErasureColumns+` FROM erasures
			  WHERE state = 'open' AND domain = $1 AND kind = $2 AND name = $3`, about.Domain, about.Kind, about.Name)
		}
		if err != nil || asked != nil {
			return err
		}
		asked, err = One[Erasure](ctx, tx, `INSERT INTO erasures (domain, kind, name, asked_by)
		  VALUES ($1, $2, $3, actor()) RETURNING `+ErasureColumns, about.Domain, about.Kind, about.Name)
		if err != nil {
			return err
		}
		return LogErasure(ctx, tx, "erase", asked, map[string]any{"erasure": asked.ID})
	})
	return asked, err
}

// LogErasure adds a line about an erasure to the audit.
func LogErasure(ctx context.Context, tx pgx.Tx, action string, e *Erasure, after map[string]any) error {
	_, err := tx.Exec(ctx, `INSERT INTO audit (action, domain, kind, name, after, done_at)
	  VALUES ($1, $2, $3, $4, $5, now())`, action, e.Domain, e.Kind, fmt.Sprint("erasure ", e.ID), after)
	return err
}

// Erasures are those of some domains, nil for all, with numbers below before, the newest first; 0: from the newest on.
func (d *DB) Erasures(ctx context.Context, domains []string, before int64, count int) ([]Erasure, error) {
	return Many[Erasure](ctx, d.reads, `SELECT `+ErasureColumns+` FROM erasures
	  WHERE ($1::bigint = 0 OR id < $1) AND ($3::text[] IS NULL OR domain = ANY ($3)) ORDER BY id DESC LIMIT $2`,
		before, count, domains)
}

// Erasure is one erasure.
func (d *DB) Erasure(ctx context.Context, id int64) (*Erasure, error) {
	return found(One[Erasure](ctx, d.reads, `SELECT `+ErasureColumns+` FROM erasures WHERE id = $1`, id))
}

// OpenErasures is the number of erasures that have not ended.
func (d *DB) OpenErasures(ctx context.Context) (n int64, err error) {
	err = d.reads.QueryRow(ctx, `SELECT count(*) FROM erasures WHERE state = 'open'`).Scan(&n)
	return n, err
}
