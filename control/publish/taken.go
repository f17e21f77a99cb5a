package publish

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/redis/peers"
)

const (
	takenPage = 1000      // identities of a domain that are read together
	atSidecar = "sidecar" // the address of who changed a block there
)

// takenScript removes notes that are still what was read.
//
//go:embed taken.lua
var takenScript string

// Take is a task: it takes over blocks that sidecars have changed while no control ran. Notes of domains that the
// control does not keep stay, for when it does.
func (p *Publisher) Take(ctx context.Context, _ <-chan struct{}) error {
	kept, err := p.domains(ctx)
	if err != nil {
		return err
	}
	var asked []redis.Command
	for domain := range kept {
		key := p.cfg.Keys.Shared(profiles.TakenKey(domain))
		asked = append(asked, redis.Command{Key: key, Args: []any{"ZRANGE", key, 0, takenPage - 1, "WITHSCORES"}})
	}
	for i, reply := range p.cfg.Redis.RunAll(ctx, asked) {
		if reply.Err != nil {
			return fmt.Errorf("read which blocks sidecars have changed: %w", reply.Err)
		}
		if notes, _ := reply.Value.([]any); len(notes) > 0 {
			err = errors.Join(err, p.takeNoted(ctx, asked[i].Key, notes))
		}
	}
	return err
}

// takeNoted takes over the blocks of some notes, each with its score behind it, and removes the notes.
func (p *Publisher) takeNoted(ctx context.Context, key string, notes []any) error {
	some := p.readTaken(notes)
	_, err := p.Reconcile(ctx, p.cfg.Database.Tasks, some)
	if err == nil {
		err = p.profiles.Announce(ctx, identitiesOf(some))
	}
	p.passed("taken")
	if err == nil {
		_, err = p.cfg.Redis.Run(ctx, key, append([]any{"EVAL", takenScript, 1, key}, notes...)...)
	}
	return err
}

// readTaken reads identities. What cannot be read, or cannot have a profile, is left out.
func (p *Publisher) readTaken(notes []any) (some []database.Subject) {
	for note := range slices.Chunk(notes, 2) {
		text, _ := note[0].(string)
		var one peers.MissingProfile
		shown, err := p.cfg.Keys.Show([]byte(text))
		if err == nil {
			err = json.Unmarshal(shown, &one)
		}
		s := database.Subject{Domain: one.Domain, Kind: one.Kind, Name: one.Name}
		if err == nil && mayBe(s) {
			some = append(some, s)
			continue
		}
		p.cfg.Log.Warn("a block that a sidecar has changed cannot be taken over", "error", err)
	}
	return some
}

// takeOver takes blocks, or their ends, over into the database. One that the database cannot have is logged, and no
// longer among those that were read: its profile stays as it is.
func (p *Publisher) takeOver(ctx context.Context, was map[database.Subject]string) error {
	for s, text := range was {
		swap := profiles.Swap{Was: text}
		r := swap.Taken()
		if r == nil {
			continue
		}
		by := database.Actor{Name: r.By, Address: atSidecar}
		done, err := p.cfg.Database.TakeOver(ctx, by, s, r.At, blockIn(r))
		switch {
		case impossible(err):
			delete(was, s)
			p.leftOut.note(fmt.Errorf("the block of the %s %q of the domain %q: %w", s.Kind, s.Name, s.Domain, err))
		case err != nil:
			return fmt.Errorf("take over a block: %w", err)
		default:
			p.cfg.Log.Info("a sidecar has changed a block while no control ran", "domain", s.Domain, "kind", s.Kind,
				"by", r.By, "blocked", blockIn(r) != nil, "taken_over", done)
		}
	}
	return nil
}

// impossible reports whether a row can never be written: it breaks a constraint, or has a value that no column takes.
// Other errors of the database pass, such as a full disk.
func impossible(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (strings.HasPrefix(refused.Code, "22") || strings.HasPrefix(refused.Code, "23"))
}

// blockIn is the block of a profile that is in force; nil: none.
func blockIn(r *profiles.Profile) *database.BlockRequest {
	b := r.Block
	if b == nil || b.Lifted || !b.Until.IsZero() && !b.Until.After(time.Now()) {
		return nil
	}
	made := &database.BlockRequest{Reason: b.Reason}
	if !b.Until.IsZero() {
		made.Until = &b.Until
	}
	return made
}
