// Package publish puts what the database has into Redis, where sidecars take it from.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/peers"
	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/rules"
)

const (
	leaderLock  = 7_269_310_517_334_085 // number of the advisory lock that the leader holds
	LookEvery   = time.Second           // for the lock, and for what a lost notification would have said
	markEvery   = LookEvery / 2         // for the marks of Redis, and for loads
	walkEvery   = 30 * time.Second      // from the end of one repair walk to the next
	feedPage    = 1000                  // rows of the outbox that are done together
	keepOutbox  = 7 * 24 * time.Hour    // rows that are done
	redisWithin = 5 * time.Second       // for a lookup
)

// Config sets up a Publisher. All fields are required.
type Config struct {
	Database *database.DB
	Redis    *redis.Client
	Keys     descriptors.RecordKeys
	Log      *slog.Logger
}

// Publisher puts what the database has into Redis, while it leads. Of several, one leads.
type Publisher struct {
	cfg     Config
	Book    *records.Book
	turns   *turns
	untold  untold // by walks
	missing *missing
	unfit   *unfit // rows that cannot be records
	Leads   atomic.Bool
	mended  atomic.Int64 // records and documents that were not what they had to be
	walked  atomic.Int64 // when the last whole walk ended, in ms since the epoch
	current atomic.Int64 // when all changes were in Redis, or another one was found to lead, in ms since the epoch
	whole   atomic.Bool  // Redis had all but changes when it was looked at last
	problem atomic.Pointer[string]

	unsure   bool        // sidecars may not have heard of records that are in Redis: this control has just begun to lead, or feed has failed; only lead uses it
	unheard  atomic.Bool // the same of published rules
	compared func()      // is told of each page of a walk that was compared and has to be written, for tests
}

// New makes a Publisher that does nothing yet.
func New(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, turns: newTurns(), untold: untold{classes: map[string]bool{}}, missing: newMissing(), unfit: newUnfit(cfg.Log), compared: func() {}}
	p.current.Store(time.Now().UnixMilli())
	news := cfg.Keys.Shared("news")
	p.Book = records.New(records.Config{
		Redis: cfg.Redis, Index: cfg.Keys.Shared("index"), Patience: redisWithin,
		Key: func(id *records.Identity) string { return cfg.Keys.RecordKey(id.Domain, id.Kind.String(), id.Text()) },
		Publish: func(ctx context.Context, key, class string) error {
			return peers.Announce(ctx, cfg.Redis, news, peers.TopicRecord, peers.ChangedRecord{Key: key, Class: class})
		},
	})
	return p
}

// Close ends what runs beside Run.
func (p *Publisher) Close() error { return p.Book.Close() }

// Run leads, or waits until it may, until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.term(ctx)
		if p.Leads.Swap(false) {
			p.cfg.Log.Warn("this control leads no longer", "error", err)
		}
		if err != nil && ctx.Err() == nil {
			p.Note(err)
		}
		Pause(ctx, LookEvery)
	}
}

// Status is how a Publisher does.
type Status struct {
	Leads   bool
	Problem string    // why it cannot publish now; empty: it can
	Mended  int64     // records and documents that were not what they had to be
	Walked  time.Time // when the last whole walk ended; zero: none has
	Current time.Time // when all changes were in Redis, or another control was found to lead
	Unheard int64     // questions of sidecars for which there was no room
}

// Status is how it does now.
func (p *Publisher) Status() Status {
	s := Status{
		Leads: p.Leads.Load(), Mended: p.mended.Load(), Current: time.UnixMilli(p.current.Load()),
		Unheard: p.missing.dropped.Load(),
	}
	if at := p.walked.Load(); at > 0 {
		s.Walked = time.UnixMilli(at).UTC()
	}
	if problem := p.problem.Load(); problem != nil {
		s.Problem = *problem
	}
	return s
}

// Note keeps why the publisher cannot work now, for the status, and logs it.
func (p *Publisher) Note(err error) {
	text := err.Error()
	before := p.problem.Swap(&text)
	if before == nil || *before != text {
		p.cfg.Log.Warn("publish: "+text, "instead", "sidecars go on with what they have")
	}
}

// Pause waits.
func Pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// term is one time of leading: from getting the lock until the connection that holds it is lost. It returns nil where another leads.
func (p *Publisher) term(ctx context.Context) error {
	err := p.cfg.Database.CheckSchema(ctx)
	if err != nil {
		return err
	}
	conn, err := p.cfg.Database.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the lock goes with the connection
	var mine bool
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, leaderLock).Scan(&mine)
	if err == nil && !mine {
		p.problem.Store(nil) // what is wrong now is for the leader to show
		p.current.Store(time.Now().UnixMilli())
	}
	if err != nil || !mine {
		return err
	}
	_, err = conn.Exec(ctx, `LISTEN spillway`) // before the first walk, so that no change is missed
	if err != nil {
		return fmt.Errorf("listen for changes: %w", err)
	}
	p.Leads.Store(true)
	p.cfg.Log.Info("this control leads")
	return p.lead(ctx, conn)
}

// lead keeps Redis up to date until the connection is lost. Changes are fed by the session that holds the lock, whatever else is written.
func (p *Publisher) lead(ctx context.Context, conn *pgx.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	p.whole.Store(false)
	p.unsure = true
	p.unheard.Store(true)
	beside.Go(func() { p.repair(ctx) })
	beside.Go(func() { p.answerMissing(ctx) })
	for ctx.Err() == nil {
		err := p.feed(ctx, conn)
		switch {
		case err != nil:
			p.Note(err)
		case p.whole.Load():
			p.problem.Store(nil)
			p.current.Store(time.Now().UnixMilli())
		}
		err = await(ctx, conn)
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits for a change of the database, or a second, and finds out whether the connection still holds.
func await(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, LookEvery)
	defer cancel()
	_, err := conn.WaitForNotification(wait)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil || !errors.Is(wait.Err(), context.DeadlineExceeded) {
		return err
	}
	alive, stop := context.WithTimeout(ctx, 2*LookEvery)
	defer stop()
	return conn.Ping(alive)
}

// repair walks where a walk is due, a server of Redis was emptied, or users were loaded, until ctx ends.
func (p *Publisher) repair(ctx context.Context) {
	var walked time.Time
	for ctx.Err() == nil {
		err := p.repairOnce(ctx, &walked)
		p.whole.Store(err == nil)
		if err != nil && ctx.Err() == nil {
			p.Note(err)
		}
		if !errors.Is(err, errEmptied) {
			Pause(ctx, markEvery)
		}
	}
}

// repairOnce walks if that is due.
func (p *Publisher) repairOnce(ctx context.Context, walked *time.Time) error {
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
	case time.Since(*walked) < walkEvery:
		return nil
	}
	if marks.lost > 0 {
		p.cfg.Log.Warn("Redis has lost what it had: all of it is put back")
	}
	err = p.fill(ctx, loads, marks)
	if err == nil {
		*walked = time.Now()
		p.walked.Store(walked.UnixMilli())
	}
	return err
}

// fill walks, and notes loads that are in Redis then. It has a connection of its own: callers of the API may use all of the pool.
func (p *Publisher) fill(ctx context.Context, loads []int64, before marked) error {
	conn, err := p.cfg.Database.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))         //nolint:errcheck // nothing is lost
	_, err = conn.Exec(ctx, `SET statement_timeout = 0`) // a table is read by one statement, at the pace of Redis
	if err != nil {
		return fmt.Errorf("set up the walk: %w", err)
	}
	err = p.guarded(ctx, func(ctx context.Context) error {
		if before.full == before.servers {
			return p.walk(ctx, conn, false)
		}
		return p.refill(ctx, conn, before.lost == before.servers)
	})
	if err != nil || len(loads) == 0 {
		return err
	}
	return done(ctx, conn, loads)
}

// publish makes the documents in Redis those of the database, and tells the sidecars where one was not, or where that could not be told.
func (p *Publisher) publish(ctx context.Context, q database.Querier) error {
	wanted, err := documents(ctx, q)
	if err != nil {
		return fmt.Errorf("read the published rules: %w", err)
	}
	key := p.cfg.Keys.Shared(rules.PublishedKey)
	reply, err := p.cfg.Redis.Run(ctx, key, "HGETALL", key)
	if err != nil {
		return fmt.Errorf("read what is published in Redis: %w", err)
	}
	have := map[string]string{}
	items, _ := reply.([]any)
	for i := 0; i+1 < len(items); i += 2 {
		have[ReplyText(items[i])] = ReplyText(items[i+1])
	}
	for domain, text := range wanted {
		if have[domain] == text {
			continue
		}
		p.unheard.Store(true)
		_, err = p.cfg.Redis.Run(ctx, key, "HSET", key, domain, text)
		if err != nil {
			return fmt.Errorf("publish the rules of the domain %q: %w", domain, err)
		}
		p.mended.Add(1)
		p.cfg.Log.Info("published rules", "domain", domain)
	}
	if !p.unheard.Load() {
		return nil
	}
	err = peers.Announce(ctx, p.cfg.Redis, p.cfg.Keys.Shared("news"), peers.TopicRules, struct{}{})
	if err == nil {
		p.unheard.Store(false)
	}
	return err
}

// ReplyText is a text in a reply of Redis; of anything else nothing.
func ReplyText(reply any) string {
	text, _ := reply.(string)
	return text
}
