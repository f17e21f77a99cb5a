package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis/peers"
)

const (
	maxMissing  = 4096 // identities that wait to be put back before others
	missingPage = 64   // that are put back together
	maxMessage  = 1 << 20
	maxName     = 4096 // bytes: of 1024 letters at most

	refillGrowth = 400 // percent of the memory in use by which the heap grows until garbage is collected
)

// missing is the identities that sidecars ask about while profiles are put back.
type missing struct {
	mu      sync.Mutex // guards waiting
	waiting map[database.Subject]bool
	wake    chan struct{}
	dropped atomic.Int64 // questions that were dropped for want of room
}

func newMissing() *missing {
	return &missing{waiting: map[database.Subject]bool{}, wake: make(chan struct{}, 1)}
}

// ask takes questions in.
func (m *missing) ask(some []database.Subject) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range some {
		if len(m.waiting) >= maxMissing && !m.waiting[s] {
			m.dropped.Add(1)
			continue
		}
		m.waiting[s] = true
	}
	select {
	case m.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// take returns some questions, which do not wait any more.
func (m *missing) take() (some []database.Subject) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.waiting {
		delete(m.waiting, s)
		some = append(some, s)
		if len(some) == missingPage {
			break
		}
	}
	return some
}

// refill walks where Redis has lost profiles. Sidecars know of it: they hold what they know, and ask for what they
// miss. Garbage is collected more rarely meanwhile, which is a fifth of the control's work, unless GOGC sets how often.
func (p *Publisher) refill(ctx context.Context, q database.Querier) error {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(refillGrowth))
	}
	like, err := kindsOf(ctx, q)
	if err == nil {
		err = p.profiles.BeginFilling(ctx, like)
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var answering sync.WaitGroup
	answering.Go(func() {
		err := p.answer(ctx)
		if err != nil {
			stop(fmt.Errorf("put back what sidecars ask for: %w", err))
		}
	})
	err = p.walk(ctx, q)
	cause := context.Cause(ctx)
	stop(nil)
	answering.Wait()
	if cause != nil {
		return cause
	}
	if err == nil {
		err = p.profiles.EndFilling(context.WithoutCancel(ctx))
	}
	return err
}

// kindsOf is an identity of each kind of which a domain has many profiles.
func kindsOf(ctx context.Context, q database.Querier) (like []profiles.Identity, err error) {
	type kinds struct {
		Name        string
		Users, Keys bool
	}
	all, err := database.Many[kinds](ctx, q, `SELECT name,
	  EXISTS (SELECT FROM users WHERE domain = domains.name) AS users,
	  EXISTS (SELECT FROM api_keys WHERE domain = domains.name) AS keys FROM domains`)
	if err != nil {
		return nil, fmt.Errorf("read which profiles there are: %w", err)
	}
	for _, d := range all {
		if d.Users {
			like = append(like, profiles.Identity{Domain: d.Name, Kind: profiles.User})
		}
		if d.Keys {
			like = append(like, profiles.Identity{Domain: d.Name, Kind: profiles.APIKey},
				profiles.Identity{Domain: d.Name, Kind: profiles.Secret})
		}
	}
	return like, nil
}

// answer puts profiles back that sidecars ask for, before all pages of a walk, until ctx ends.
func (p *Publisher) answer(ctx context.Context) error {
	stop := peers.Receive(p.cfg.Redis, p.cfg.Keys.Shared("missing"), map[string]func([]byte){
		peers.TopicMissing: p.hearMissing,
	})
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.missing.wake:
		}
		err := p.putBack(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// putBack puts back what was asked for. Of whom the database knows nothing, nothing is written.
func (p *Publisher) putBack(ctx context.Context) error {
	for some := p.missing.take(); len(some) > 0; some = p.missing.take() {
		wanted, err := p.desiredOf(ctx, p.cfg.Database.Tasks, some)
		if err != nil {
			return err
		}
		var there []database.Subject
		for _, d := range wanted {
			if d.profile != nil {
				there = append(there, d.Subject)
			}
		}
		_, err = p.Reconcile(ctx, p.cfg.Database.Tasks, there)
		if err == nil {
			err = p.profiles.Announce(ctx, identitiesOf(there))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hearMissing takes in what a sidecar asks for.
func (p *Publisher) hearMissing(body []byte) {
	subjects, err := p.readMissing(body)
	if err != nil {
		p.cfg.Log.Warn("a question of a sidecar cannot be read", "error", err)
		return
	}
	p.missing.ask(subjects)
}

// readMissing reads a question. What cannot have a profile is left out.
func (p *Publisher) readMissing(body []byte) (subjects []database.Subject, err error) {
	if len(body) > maxMessage {
		return nil, errors.New("the message is too long")
	}
	var question peers.MissingProfiles
	var all []peers.MissingProfile
	err = json.Unmarshal(body, &question)
	if err == nil {
		body, err = p.cfg.Keys.Show(question.Hidden)
	}
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		s := database.Subject{Domain: one.Domain, Kind: one.Kind, Name: one.Name}
		if mayBe(s) {
			subjects = append(subjects, s)
		}
	}
	return subjects, nil
}

// mayBe reports whether the database can have such a subject, and be asked for it.
func mayBe(s database.Subject) bool {
	_, err := IdentityOf(s)
	return err == nil && len(s.Domain) <= maxName && len(s.Name) <= maxName &&
		!strings.ContainsRune(s.Domain+s.Name, 0) && (s.Kind != database.KindSecret || isDigest(s.Name))
}
