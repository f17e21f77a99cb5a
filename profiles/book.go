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

// Config sets up a Book.
type Config struct {
	Redis *redis.Client // where records are kept; nil: in this process
	// Key is where the record of an identity is kept. It is required with Redis.
	Key   func(*Identity) string
	Index string // key of the index of the kinds of records that there are; required with Redis
	// Claims is the key of the domains that the control plane keeps. It is required with Redis.
	Claims string
	// Serves reports whether there are rules for a domain: of others no record is looked up, and no news is taken in.
	// After it has changed, call Reread. Nil: all domains are served.
	Serves func(domain string) bool
	// Publish announces to the other sidecars that the record of a key has changed, which is of that class; an empty
	// key means any of the class. It is required with Redis.
	Publish func(ctx context.Context, key, class string) error
	// Prepare makes of a record what decisions use. It is called once when a record is read. Nil: the record itself.
	Prepare func(*Identity, *Record) any
	Bytes   int64 // memory of the cache at most; default 16 MiB
	// Missing asks the control plane to put records back before others, while it puts back what Redis has lost. Nil: it
	// is not asked.
	Missing func(ctx context.Context, ids []Identity) error
	// Taken notes that an operator has changed a block, which a control takes over. Nil: it is not noted.
	Taken func(ctx context.Context, id Identity) error
	// longest wait of a lookup; default 100 ms, and never above 40 % of what is left to the caller
	Patience time.Duration
	OnError  func(reason string, err error)
	Now      func() time.Time // default time.Now
}

// maxLocal is how many records this process keeps without Redis.
const maxLocal = 100_000

// Book is all records. It is safe for concurrent use.
type Book struct {
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

	unreadable atomic.Int64 // replies about a record that could not be read
}

// New makes a Book. It does not wait for Redis.
func New(cfg Config) *Book {
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
		cfg.Prepare = func(_ *Identity, r *Record) any { return r }
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &Book{
		cfg: cfg, cache: newCache(cfg.Bytes), stop: stop, wake: make(chan struct{}, 1), first: make(chan struct{}),
		missing: make(chan Identity, maxMissing),
		local:   map[Identity]*entry{}, news: news{added: map[string]time.Time{}}, uses: map[string]*uses{},
	}
	if cfg.Redis == nil {
		close(b.first)
		return b
	}
	b.running.Go(func() { b.follow(ctx) })
	b.running.Go(func() { b.askMissing(ctx) })
	return b
}

// Close ends what runs in the background.
func (b *Book) Close() error {
	b.stop()
	b.running.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news.stopLocked()
	return nil
}

// Ready waits until it is known which kinds of records there are, or that this cannot be known now.
func (b *Book) Ready(ctx context.Context) {
	select {
	case <-b.first:
	case <-ctx.Done():
	}
}

// Kinds are the kinds of identities that have records in a domain, or nil for none. It is quick and allocates nothing.
func (b *Book) Kinds(domain string) *Kinds {
	all := b.catalog.Load()
	if all == nil {
		return nil
	}
	return (*all)[domain]
}

// Cached returns what decisions use of the record of an identity, nil where it has none, and whether that is up to
// date. If not, Ask does better. It allocates nothing.
func (b *Book) Cached(id *Identity) (value any, fresh bool) { return b.cached(b.Kinds(id.Domain), id) }

// cached is Cached for who has the kinds of the domain.
func (b *Book) cached(kinds *Kinds, id *Identity) (value any, fresh bool) {
	if b.cfg.Redis == nil {
		return b.localValue(id), true
	}
	e, fresh := b.cache.find(id, b.cfg.Now())
	switch {
	case kinds == nil: // the domain is without records
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

func (b *Book) localValue(id *Identity) any {
	b.mu.RLock()
	defer b.mu.RUnlock()
	e := b.local[*id]
	if e == nil {
		return nil
	}
	return e.value
}

// Ask looks records up, all at once, and returns what decisions use of each. Without a reply in time, it is
// what was known before.
func (b *Book) Ask(ctx context.Context, ids []Identity) []any {
	values := make([]any, len(ids))
	if b.cfg.Redis == nil {
		for i := range ids {
			values[i] = b.localValue(&ids[i])
		}
		return values
	}
	b.lookUp(ctx, ids, values)
	return values
}

// Get reads the record of an identity, nil for none. It always asks Redis.
func (b *Book) Get(ctx context.Context, id Identity) (*Record, error) {
	if b.cfg.Redis == nil {
		b.mu.RLock()
		defer b.mu.RUnlock()
		if e := b.local[id]; e != nil {
			return e.record, nil
		}
		return nil, nil
	}
	_, r, err := b.read(ctx, b.cfg.Key(&id))
	return r, err
}

// Known returns the record of an identity as it was last known, nil for none. It asks no server.
func (b *Book) Known(id Identity) *Record {
	if e, _ := b.cache.find(&id, b.cfg.Now()); e != nil {
		return e.record
	}
	return nil
}

// errBusy means that others change the same record all the time.
var errBusy = errors.New("the record is being changed by others: try again")

// changeTries is how often a change is tried again because another one came first.
const changeTries = 8

// Change changes the record of an identity: change gets what it is, a zero Record where it does not exist, and changes
// it in place. It returns the record before and after, nil for none. After an error the record may have been changed
// all the same, unless the error states that it was not.
func (b *Book) Change(
	ctx context.Context, id Identity, by string, change func(*Record),
) (before, after *Record, err error) {
	edit := func(was *Record) *Record { return b.edit(was, by, change) }
	if b.cfg.Redis == nil {
		return b.changeLocal(id, edit)
	}
	for range changeTries {
		before, after, err = b.changeOnce(ctx, id, by, edit)
		if !errors.Is(err, errBusy) {
			return before, after, err
		}
	}
	return before, after, err
}

// Preview returns what Change would, and changes nothing.
func (b *Book) Preview(
	ctx context.Context, id Identity, by string, change func(*Record),
) (before, after *Record, err error) {
	before, err = b.Get(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return before, b.edit(before, by, change), nil
}

// edit returns the changed record, nil where nothing is left of it.
func (b *Book) edit(was *Record, by string, change func(*Record)) *Record {
	r := Record{}
	if was != nil {
		r = *was
	}
	kept, tier, limits := r.Control, r.Tier, r.Limits
	change(&r)
	if r.empty() {
		return nil
	}
	r.Operator = r.Operator || kept && (r.Tier != tier || !slices.Equal(r.Limits, limits))
	r.By, r.At = by, b.cfg.Now().UTC().Truncate(time.Second)
	return &r
}

// changeLocal changes a record of this process.
func (b *Book) changeLocal(id Identity, edit func(*Record) *Record) (before, after *Record, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.local[id]; e != nil {
		before = e.record
	}
	after = edit(before)
	switch {
	case after == nil:
		delete(b.local, id)
	case before == nil && !b.roomLocked():
		return nil, nil,
			fmt.Errorf("there are %d records, and without Redis there may not be more: remove some", maxLocal)
	default:
		b.local[id] = &entry{record: after, value: b.cfg.Prepare(&id, after)}
		b.addLocked(id.class())
	}
	return before, after, nil
}

// roomLocked reports whether this process may keep one more record. Where it may not, blocks that have ended go first.
func (b *Book) roomLocked() bool {
	if len(b.local) < maxLocal {
		return true
	}
	now := b.cfg.Now()
	maps.DeleteFunc(b.local, func(_ Identity, e *entry) bool {
		end := e.record.expires()
		return !end.IsZero() && !end.After(now)
	})
	return len(b.local) < maxLocal
}

// Outdate takes in that changes may have been missed: everything is looked up again when it is needed.
func (b *Book) Outdate() {
	b.cache.outdate()
	b.Reread()
}

// Reread reads soon which kinds of records there are. It does not wait.
func (b *Book) Reread() {
	select {
	case b.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// Stats is what a Book counts about itself.
type Stats struct {
	Entries    int64 `metric:"record_cache_entries" help:"Identities whose records are remembered, also empty ones."`
	Bytes      int64 `metric:"record_cache_bytes" help:"Memory that they take, estimated from above."`
	Hits       int64 `metric:"record_cache_hits_total" help:"Lookups of records that Redis was not asked for."`
	Misses     int64 `metric:"record_cache_misses_total" help:"Lookups of records that Redis was asked for."`
	Drops      int64 `metric:"record_cache_drops_total" help:"Records forgotten early, for want of room."`
	Unasked    int64 `metric:"record_cache_unasked_total" help:"Missing records the control plane was not asked for."`
	Unreadable int64 `metric:"record_cache_unreadable_total" help:"Unreadable records in Redis; known ones hold."`
}

// Uses returns how often the cache had the answer, for each domain that has had records.
func (b *Book) Uses() []Use {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := make([]Use, 0, len(b.uses))
	for domain, u := range b.uses {
		all = append(all, Use{Domain: domain, Hits: u.hits.Load(), Misses: u.misses.Load()})
	}
	return all
}

// Stats is what the book has counted so far.
func (b *Book) Stats() Stats {
	c := b.cache
	hits, misses := int64(0), int64(0)
	for _, u := range b.Uses() {
		hits, misses = hits+u.Hits, misses+u.Misses
	}
	return Stats{
		Entries: c.entries(), Bytes: c.bytes(), Hits: hits, Misses: misses,
		Drops: c.drops.Load(), Unasked: b.unasked.Load(),
		Unreadable: b.unreadable.Load(),
	}
}
