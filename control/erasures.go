package control

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/admin"
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

// ErasureList is erasures.
type ErasureList struct {
	Erasures []Erasure `json:"erasures"`
}

const (
	erasureColumns = `id, domain, kind, state, asked_by, asked_at, finished_at, problem, places`
	stateDone      = "done"
	stateLeft      = "left"
)

// erasureName stands in the audit in place of a name.
func erasureName(id int64) string { return "erasure " + strconv.FormatInt(id, 10) }

// AskErasure asks for an erasure. Where the same one is open it returns that one. The audit shows its number and no name.
func (d *Database) AskErasure(ctx context.Context, who Actor, about Subject) (asked *Erasure, err error) {
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('erasures', 0))`)
		if err == nil {
			asked, err = one[Erasure](ctx, tx, `SELECT `+erasureColumns+` FROM erasures WHERE state = 'open' AND domain = $1 AND kind = $2 AND name = $3`, about.Domain, about.Kind, about.Name)
		}
		if err != nil || asked != nil {
			return err
		}
		asked, err = one[Erasure](ctx, tx, `INSERT INTO erasures (domain, kind, name, asked_by) VALUES ($1, $2, $3, $4) RETURNING `+erasureColumns, about.Domain, about.Kind, about.Name, who.Name)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO audit (who, address, action, domain, kind, name, after) VALUES ($1, $2, 'erase', $3, $4, $5, jsonb_build_object('erasure', $6::bigint))`,
			who.Name, who.Address, about.Domain, about.Kind, erasureName(asked.ID), asked.ID)
		return err
	})
	return asked, err
}

// Erasures are those of some domains, nil for all, with numbers below before, the newest first; 0: from the newest on.
func (d *Database) Erasures(ctx context.Context, domains []string, before int64, count int) ([]Erasure, error) {
	return many[Erasure](ctx, d.reads, `SELECT `+erasureColumns+` FROM erasures WHERE ($1::bigint = 0 OR id < $1) AND ($3::text[] IS NULL OR domain = ANY ($3))
	  ORDER BY id DESC LIMIT $2`, before, count, domains)
}

// Erasure is one erasure.
func (d *Database) Erasure(ctx context.Context, id int64) (*Erasure, error) {
	return found(one[Erasure](ctx, d.reads, `SELECT `+erasureColumns+` FROM erasures WHERE id = $1`, id))
}

// erase serves DELETE of an identity. The leader does it; the answer is the erasure to ask about.
func (a *API) erase(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	s, err := c.subject()
	if err != nil {
		return nil, err
	}
	return a.Database.AskErasure(c.ctx, c.who, s)
}

func (a *API) erasures(c *call) (any, error) {
	_, before, count, err := c.page()
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Erasures(c.ctx, c.caller.Domains, before, count)
	return ErasureList{listed(all)}, err
}

func (a *API) erasure(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	text := c.r.PathValue("erasure")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return nil, admin.NewProblem(http.StatusBadRequest, "the erasure %q must be a number from 1", text)
	}
	e, err := a.Database.Erasure(c.ctx, id)
	if err == nil && !c.caller.may(e.Domain) {
		return nil, errNotFound
	}
	return e, err
}

// openErasure is an erasure with whom it is about.
type openErasure struct {
	Erasure
	Name string
	Also *erasedKeys
}

// erasedKeys are the API keys of a person. They are kept until the erasure ends, because their rows go first.
type erasedKeys struct {
	IDs      []string `json:"ids"`
	Digests  []string `json:"digests"` // in hex
	Prefixes []string `json:"prefixes"`
}

// nextErasure is the open erasure that was asked for first, or nil.
func (d *Database) nextErasure(ctx context.Context) (*openErasure, error) {
	return one[openErasure](ctx, d.pool, `SELECT `+erasureColumns+`, name, also FROM erasures WHERE state = 'open' ORDER BY id LIMIT 1`)
}

// gather adds the API keys of the person to the erasure.
func (d *Database) gather(ctx context.Context, e *openErasure) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		have := erasedKeys{}
		if e.Also != nil {
			have = *e.Also
		}
		if e.Kind == "api_key" {
			have.IDs = append(have.IDs, e.Name)
		}
		rows, err := tx.Query(ctx, `SELECT id, encode(digest, 'hex'), prefix FROM api_keys WHERE domain = $1 AND ($2 = 'user' AND user_name = $3 OR $2 = 'api_key' AND id = $3)`, e.Domain, e.Kind, e.Name)
		if err != nil {
			return err
		}
		var id, digest, prefix string
		_, err = pgx.ForEachRow(rows, []any{&id, &digest, &prefix}, func() error {
			have.IDs, have.Digests, have.Prefixes = append(have.IDs, id), append(have.Digests, digest), append(have.Prefixes, prefix)
			return nil
		})
		if err != nil {
			return err
		}
		have.IDs, have.Digests, have.Prefixes = distinct(have.IDs), distinct(have.Digests), distinct(have.Prefixes)
		e.Also = &have
		_, err = tx.Exec(ctx, `UPDATE erasures SET also = $2 WHERE id = $1`, e.ID, asJSON(have))
		return err
	})
}

// finish ends an erasure, and takes the name out of it. Without anything left it is done.
func (d *Database) finish(ctx context.Context, e *openErasure) error {
	state := stateDone
	for _, p := range e.Places {
		if p.Left > 0 {
			state = stateLeft
		}
	}
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE erasures SET state = $2, name = NULL, also = NULL, finished_at = now(), problem = $3, places = $4 WHERE id = $1`, e.ID, state, e.Problem, asJSON(e.Places))
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO audit (who, address, action, domain, kind, name, after) VALUES ($1, '', 'erased', $2, $3, $4, $5)`,
			e.AskedBy, e.Domain, e.Kind, erasureName(e.ID), asJSON(map[string]any{"erasure": e.ID, "state": state, "places": e.Places}))
		return err
	})
}

// postpone keeps why an erasure is not done yet.
func (d *Database) postpone(ctx context.Context, e *openErasure, why error) error {
	_, err := d.pool.Exec(ctx, `UPDATE erasures SET problem = $2, places = $3 WHERE id = $1`, e.ID, why.Error(), asJSON(e.Places))
	if err != nil {
		return fmt.Errorf("note that erasure %d goes on later: %w", e.ID, err)
	}
	return nil
}
