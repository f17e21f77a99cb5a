package profiles

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

// Config sets up a Store.
type Config struct {
	Redis *redis.Client // where profiles are kept; nil: in this process
	// Key is where the profile of an identity is kept. It is required with Redis.
	Key   func(*Identity) string
	Index string // key of the index of the kinds of profiles that there are; required with Redis
	// Claims is the key of the domains that the control plane keeps. It is required with Redis.
	Claims string
	// Serves reports whether there are rules for a domain: of others no profile is looked up, and no news is taken in.
	// After it has changed, call Reread. Nil: all domains are served.
	Serves func(domain string) bool
	// Publish announces to the other sidecars that the profile of a key has changed, which is of that class; an empty
	// key means any of the class. It is required with Redis.
	Publish func(ctx context.Context, key, class string) error
	// Prepare makes of a profile what decisions use. It is called once when a profile is read. Nil: the profile itself.
	Prepare func(*Identity, *Profile) any
	Bytes   int64 // memory of the cache at most; default 16 MiB
	// Missing asks the control plane to put profiles back before others, while it puts back what Redis has lost. Nil:
	// it is not asked.
	Missing func(ctx context.Context, ids []Identity) error
	// Taken notes that an operator has changed a block, which a control takes over. Nil: it is not noted.
	Taken func(ctx context.Context, id Identity) error
	// longest wait of a lookup; default 100 ms, and never above 40 % of what is left to the caller
	Patience time.Duration
	OnError  func(reason string, err error)
	Now      func() time.Time // default time.Now
}

// maxLocal is how many profiles this process keeps without Redis.
const maxLocal = 100_000

// Store is all profiles. It is safe for concurrent use.
type Store struct {
	cfg     Config
	cache   *cache
	catalog atomic.Pointer[catalog] // nil: not known yet
	stop    context.CancelFunc
	running sync.WaitGroup
	wake    chan struct{}
	missing chan Identity // that the control plane is to be asked about
	unasked atomic.Int64  // that it was not asked about, for want of room or of a connection
	first   chan struct{} // closed when the index was read, or could not be

	mu    sync.RWMutex        // guards local, news, uses, and changes of the catalog
	local map[Identity]*entry // without Redis
	news  news
	uses  map[string]*uses // by domain; they stay as long as the process

	unreadable atomic.Int64 // replies about a profile that could not be read
}

// New makes a Store. It does not wait for Redis.
func New(cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Bytes <= 0 {
		cfg.Bytes = 16 << 20
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 100 * time.Millisecond
	}
	if cfg.OnError == nil {
		cfg.OnError = func(string, error) {}
	}
	if cfg.Prepare == nil {
		cfg.Prepare = func(_ *Identity, r *Profile) any { return r }
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Store{
		cfg: cfg, cache: newCache(cfg.Bytes), stop: stop, wake: make(chan struct{}, 1), first: make(chan struct{}),
		missing: make(chan Identity, maxMissing),
		local:   map[Identity]*entry{}, news: news{added: map[string]time.Time{}}, uses: map[string]*uses{},
	}
	if cfg.Redis == nil {
		close(p.first)
		return p
	}
	p.running.Go(func() { p.follow(ctx) })
	p.running.Go(func() { p.askMissing(ctx) })
	return p
}

// Close ends what runs in the background.
func (p *Store) Close() error {
	p.stop()
	p.running.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news.stopLocked()
	return nil
}

// Ready waits until it is known which kinds of profiles there are, or that this cannot be known now.
func (p *Store) Ready(ctx context.Context) {
	select {
	case <-p.first:
	case <-ctx.Done():
	}
}

// Kinds are the kinds of identities that have profiles in a domain, or nil for none. It is quick and allocates nothing.
func (p *Store) Kinds(domain string) *Kinds {
	all := p.catalog.Load()
	if all == nil {
		return nil
	}
	return (*all)[domain]
}

// Cached returns what decisions use of the profile of an identity, nil where it has none, and whether that is up to
// date. If not, Ask does better. It allocates nothing.
func (p *Store) Cached(id *Identity) (value any, fresh bool) { return p.cached(p.Kinds(id.Domain), id) }

// cached is Cached for who has the kinds of the domain.
func (p *Store) cached(kinds *Kinds, id *Identity) (value any, fresh bool) {
	if p.cfg.Redis == nil {
		return p.localValue(id), true
	}
	e, fresh := p.cache.find(id, p.cfg.Now())
	switch {
	case kinds == nil: // the domain is without profiles
	case fresh:
		kinds.uses.hits.Add(1)
	default:
		kinds.uses.misses.Add(1)
	}
	if e == nil {
		return nil, false
	}
	return e.value, fresh
}

func (p *Store) localValue(id *Identity) any {
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.local[*id]
	if e == nil {
		return nil
	}
	return e.value
}

// Ask looks profiles up, all at once, and returns what decisions use of each. Without a reply in time, it is
// what was known before.
func (p *Store) Ask(ctx context.Context, ids []Identity) []any {
	values := make([]any, len(ids))
	if p.cfg.Redis == nil {
		for i := range ids {
			values[i] = p.localValue(&ids[i])
		}
		return values
	}
	p.lookUp(ctx, ids, values)
	return values
}

// Get reads the profile of an identity, nil for none. It always asks Redis.
func (p *Store) Get(ctx context.Context, id Identity) (*Profile, error) {
	if p.cfg.Redis == nil {
		p.mu.RLock()
		defer p.mu.RUnlock()
		if e := p.local[id]; e != nil {
			return e.profile, nil
		}
		return nil, nil
	}
	_, r, err := p.read(ctx, p.cfg.Key(&id))
	return r, err
}

// Known returns the profile of an identity as it was last known, nil for none. It asks no server.
func (p *Store) Known(id Identity) *Profile {
	if e, _ := p.cache.find(&id, p.cfg.Now()); e != nil {
		return e.profile
	}
	return nil
}

// errBusy means that others change the same profile all the time.
var errBusy = errors.New("the profile is being changed by others: try again")

// changeTries is how often a change is tried again because another one came first.
const changeTries = 8

// Change changes the profile of an identity: change gets what it is, a zero Profile where it does not exist, and
// changes it in place. It returns the profile before and after, nil for none. After an error the profile may have been
// changed all the same, unless the error states that it was not.
func (p *Store) Change(
	ctx context.Context, id Identity, by string, change func(*Profile),
) (before, after *Profile, err error) {
	edit := func(was *Profile) *Profile { return p.edit(was, by, change) }
	if p.cfg.Redis == nil {
		return p.changeLocal(id, edit)
	}
	for range changeTries {
		before, after, err = p.changeOnce(ctx, id, by, edit)
		if !errors.Is(err, errBusy) {
			return before, after, err
		}
	}
	return before, after, err
}

// Preview returns what Change would, and changes nothing.
func (p *Store) Preview(
	ctx context.Context, id Identity, by string, change func(*Profile),
) (before, after *Profile, err error) {
	before, err = p.Get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return before, p.edit(before, by, change), nil
}

// edit returns the changed profile, nil where nothing is left of it.
func (p *Store) edit(was *Profile, by string, change func(*Profile)) *Profile {
	r := Profile{}
	if was != nil {
		r = *was
	}
	kept, tier, limits := r.Control, r.Tier, r.Limits
	change(&r)
	if r.empty() {
		return nil
	}
	r.Operator = r.Operator || kept && (r.Tier != tier || !slices.Equal(r.Limits, limits))
	r.By, r.At = by, p.cfg.Now().UTC().Truncate(time.Second)
	return &r
}

// changeLocal changes a profile of this process.
func (p *Store) changeLocal(id Identity, edit func(*Profile) *Profile) (before, after *Profile, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.local[id]; e != nil {
		before = e.profile
	}
	after = edit(before)
	switch {
	case after == nil:
		delete(p.local, id)
	case before == nil && !p.roomLocked():
		return nil, nil,
			fmt.Errorf("there are %d profiles, and without Redis there may not be more: remove some", maxLocal)
	default:
		p.local[id] = &entry{profile: after, value: p.cfg.Prepare(&id, after)}
		p.addLocked(id.class())
	}
	return before, after, nil
}

// roomLocked reports whether this process may keep one more profile. Where it may not, blocks that have ended go first.
func (p *Store) roomLocked() bool {
	if len(p.local) < maxLocal {
		return true
	}
	now := p.cfg.Now()
	maps.DeleteFunc(p.local, func(_ Identity, e *entry) bool {
		end := e.profile.expires()
		return !end.IsZero() && !end.After(now)
	})
	return len(p.local) < maxLocal
}

// Outdate takes in that changes may have been missed: everything is looked up again when it is needed.
func (p *Store) Outdate() {
	p.cache.outdate()
	p.Reread()
}

// Reread reads soon which kinds of profiles there are. It does not wait.
func (p *Store) Reread() {
	select {
	case p.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// Stats is what a Store counts about itself.
type Stats struct {
	Entries    int64 `metric:"profile_cache_entries" help:"Identities whose profiles are remembered, also empty ones."`
	Bytes      int64 `metric:"profile_cache_bytes" help:"Memory that they take, estimated from above."`
	Hits       int64 `metric:"profile_cache_hits_total" help:"Lookups of profiles that Redis was not asked for."`
	Misses     int64 `metric:"profile_cache_misses_total" help:"Lookups of profiles that Redis was asked for."`
	Drops      int64 `metric:"profile_cache_drops_total" help:"Profiles forgotten early, for want of room."`
	Unasked    int64 `metric:"profile_cache_unasked_total" help:"Missing profiles the control plane was not asked for."`
	Unreadable int64 `metric:"profile_cache_unreadable_total" help:"Unreadable profiles in Redis; known ones hold."`
}

// Uses returns how often the cache had the answer, for each domain that has had profiles.
func (p *Store) Uses() []Use {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := make([]Use, 0, len(p.uses))
	for domain, u := range p.uses {
		all = append(all, Use{Domain: domain, Hits: u.hits.Load(), Misses: u.misses.Load()})
	}
	return all
}

// Stats is what the store has counted so far.
func (p *Store) Stats() Stats {
	c := p.cache
	hits, misses := int64(0), int64(0)
	for _, u := range p.Uses() {
		hits, misses = hits+u.Hits, misses+u.Misses
	}
	return Stats{
		Entries: c.entries(), Bytes: c.bytes(), Hits: hits, Misses: misses,
		Drops: c.drops.Load(), Unasked: p.unasked.Load(),
		Unreadable: p.unreadable.Load(),
	}
}
