// Package publish puts what the database has into Redis, where sidecars take it from. Its tasks are run by the leader.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/redis/peers"
)

const (
	markEvery   = 500 * time.Millisecond // for the marks of Redis, during a walk
	walkEvery   = 30 * time.Second       // from the end of one walk to the next
	feedPage    = 1000                   // lines of the audit that are done together
	redisWithin = 5 * time.Second        // for a lookup
)

// Config sets up a Publisher. All fields are required.
type Config struct {
	Database *database.DB
	Redis    *redis.Client
	Keys     keys.Names
	Log      *slog.Logger
}

// Publisher puts what the database has into Redis. Make one with New.
type Publisher struct {
	cfg      Config
	profiles *profiles.Store
	missing  *missing
	leftOut  *leftOut     // rows that cannot be profiles
	mended   atomic.Int64 // profiles and documents that were not what they had to be
	walked   atomic.Int64 // when the last whole walk ended, in ms since the epoch
	current  atomic.Int64 // when all changes were in Redis, in ms since the epoch
	whole    atomic.Bool  // Redis had all but changes when it was looked at last
	away     away

	lastWalk    time.Time         // in this term; only Walk uses it, and the next
	unannounced bool              // sidecars may not know of what a walk has written
	passed      func(step string) // is called after each step, for tests
}

// New makes a Publisher that does nothing yet.
func New(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, missing: newMissing(), leftOut: newLeftOut(cfg.Log), passed: func(string) {}}
	p.setCurrent()
	news := cfg.Keys.Shared("news")
	p.profiles = profiles.New(profiles.Config{
		Redis: cfg.Redis, Index: cfg.Keys.Shared("index"), Claims: cfg.Keys.Shared("claims"), Patience: redisWithin,
		Key: func(id *profiles.Identity) string { return cfg.Keys.Profile(id.Domain, id.Kind.String(), id.Text()) },
		Publish: func(ctx context.Context, key, class string) error {
			return peers.Announce(ctx, cfg.Redis, news, peers.TopicProfile,
				peers.ChangedProfile{Key: key, Class: class})
		},
	})
	return p
}

// Close ends what runs in the background.
func (p *Publisher) Close() error { return p.profiles.Close() }

// Begin forgets what was found out before this control began to lead. It is called before the tasks run.
func (p *Publisher) Begin() {
	p.whole.Store(false)
	p.lastWalk = time.Time{}
}

func (p *Publisher) setCurrent() { p.current.Store(time.Now().UnixMilli()) }

// Status is how a Publisher does.
type Status struct {
	Mended  int64     // profiles and documents that were not what they had to be
	Walked  time.Time // when the last whole walk ended; zero: none has
	Current time.Time // when all changes were in Redis
	Unheard int64     // questions of sidecars that were dropped for want of room
}

// Status is how it does now.
func (p *Publisher) Status() Status {
	s := Status{
		Mended: p.mended.Load(), Current: time.UnixMilli(p.current.Load()), Unheard: p.missing.dropped.Load(),
	}
	if at := p.walked.Load(); at > 0 {
		s.Walked = time.UnixMilli(at).UTC()
	}
	return s
}

// Remove deletes the profiles of subjects, those that operators made, too.
func (p *Publisher) Remove(ctx context.Context, subjects []database.Subject) error {
	return p.profiles.Remove(ctx, identitiesOf(subjects))
}

// Claim is a task: it notes in Redis which domains a control keeps, so that sidecars refuse changes of their profiles.
func (p *Publisher) Claim(ctx context.Context, _ <-chan struct{}) error {
	kept, err := p.domains(ctx)
	if err != nil {
		return err
	}
	return p.profiles.Claim(ctx, slices.Sorted(maps.Keys(kept)))
}

// domains are those that the control keeps.
func (p *Publisher) domains(ctx context.Context) (map[string]bool, error) {
	kept, err := database.Many[struct{ Name string }](ctx, p.cfg.Database.Tasks, `SELECT name FROM domains`)
	if err != nil {
		return nil, fmt.Errorf("read the domains: %w", err)
	}
	domains := map[string]bool{}
	for i := range kept {
		domains[kept[i].Name] = true
	}
	return domains, nil
}

// Walk is a task: it walks where a walk is due, a server of Redis was emptied, or users were loaded.
func (p *Publisher) Walk(ctx context.Context, _ <-chan struct{}) error {
	for {
		err := p.walkIfDue(ctx)
		p.whole.Store(err == nil)
		if !errors.Is(err, errEmptied) || ctx.Err() != nil {
			return err
		}
	}
}

// walkIfDue walks if that is due.
func (p *Publisher) walkIfDue(ctx context.Context) error {
	marks, err := p.readMarks(ctx)
	if err != nil {
		return err
	}
	loads, err := p.loads(ctx)
	switch {
	case err != nil:
		return err
	case marks.full < marks.servers || len(loads) > 0:
		p.whole.Store(false)
	case time.Since(p.lastWalk) < walkEvery:
		return nil
	}
	return p.walkAll(ctx, marks, loads)
}

// walkAll puts all into Redis, and reports loads as done.
func (p *Publisher) walkAll(ctx context.Context, marks marked, loads []int64) error {
	if marks.lost > 0 {
		p.cfg.Log.Warn("Redis has lost what it had: all of it is put back")
	}
	return p.walkNow(ctx, marks, loads)
}

// walkNow walks, and notes the loads that are in Redis then.
func (p *Publisher) walkNow(ctx context.Context, marks marked, loads []int64) error {
	again := p.unannounced
	p.unannounced = true
	err := p.fill(ctx, marks)
	if err == nil && again {
		err = p.profiles.AnnounceAll(ctx)
	}
	if err == nil && len(loads) > 0 {
		err = p.done(ctx, loads)
	}
	if err == nil {
		p.unannounced, p.lastWalk = false, time.Now()
		p.walked.Store(p.lastWalk.UnixMilli())
	}
	return err
}

// fill walks. It has a connection of its own: a table is read by one statement, at the pace of Redis.
func (p *Publisher) fill(ctx context.Context, before marked) error {
	conn, err := p.cfg.Database.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is lost
	_, err = conn.Exec(ctx, `SET statement_timeout = 0`)
	if err != nil {
		return fmt.Errorf("set up the walk: %w", err)
	}
	return p.guarded(ctx, func(ctx context.Context) error {
		if before.full == before.servers {
			return p.walk(ctx, conn)
		}
		return p.refill(ctx, conn)
	})
}
