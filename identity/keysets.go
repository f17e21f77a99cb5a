package identity

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// KeySetsConfig is how key sets are loaded and tokens remembered. The zero value works.
type KeySetsConfig struct {
	Transport    http.RoundTripper // of fetches; nil: one of its own, with the system's certificates and proxy settings
	LoopbackHTTP bool              // also take http URLs of loopback addresses, for tests
	Verified     int               // how many verified tokens are remembered; 0: 10,000
	Rejected     int               // how many rejected tokens are remembered; 0: 10,000
	// memory that remembered tokens take at most, beside the two bounds above; 0: no bound
	Bytes    int64
	MaxStale time.Duration // how long keys are kept that could not be confirmed; 0: 24 h

	// OnRefresh receives every load of a key set, from its own goroutine: the source without passwords, how many keys
	// are in use now, and what failed. Nil: nothing is called.
	OnRefresh func(source string, keys int, err error)
}

// KeySets holds the key sets of all domains, and what their tokens yielded. It outlives rule sets: the sets that a new
// one uses too stay loaded. Sets are loaded in the background; no request ever waits for one.
type KeySets struct {
	cfg      KeySetsConfig
	fetcher  *fetcher
	verified *cache
	rejected *cache
	counters counters
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex // guards sets, and the users of each, and uses
	sets map[string]*keySet
	uses map[string]*uses // by domain; they stay when a rule set is replaced
}

// counters are totals since the start.
type counters struct{ invalid, refused, fetches, failures atomic.Uint64 }

// uses are how often a token of one domain was remembered.
type uses struct{ hits, misses atomic.Uint64 }

// Use is how often a token of a domain was remembered, since the start.
type Use struct {
	Domain       string
	Hits, Misses uint64
}

// Stats are totals since the start, but for the last three, which are as of now.
type Stats struct {
	Hits     uint64 `metric:"token_cache_hits_total" help:"Tokens that were known already."`
	Misses   uint64 `metric:"token_cache_misses_total" help:"Tokens that had to be verified."`
	Invalid  uint64 `metric:"tokens_invalid_total" help:"Tokens that were verified and yielded no client."`
	Refused  uint64 `metric:"credentials_refused_total" help:"Requests whose credentials contradicted each other."`
	Fetches  uint64 `metric:"jwks_fetches_total" help:"Loads of key sets."`
	Failures uint64 `metric:"jwks_failures_total" help:"Loads of key sets that failed; the last good keys stayed."`
	Evicted  uint64 `metric:"token_cache_evicted_total" help:"Tokens forgotten early: no room, or long names."`

	Sets     int `metric:"jwks_sets" help:"Key sets in use."`
	Verified int `metric:"token_cache_entries" help:"Verified tokens remembered."`
	Rejected int // tokens remembered as worthless
}

// SetStatus is how one key set stands.
type SetStatus struct {
	Source string    // without passwords
	Keys   int       // in use
	Loaded time.Time // when they were last confirmed; zero: never
	Err    error     // of the last load; nil: it went well
}

// NewKeySets makes an empty holder. Close it when no Resolver is in use any more.
func NewKeySets(cfg KeySetsConfig) *KeySets {
	cfg.Verified = cmp.Or(cfg.Verified, 10_000)
	cfg.Rejected = cmp.Or(cfg.Rejected, 10_000)
	if cfg.Bytes > 0 {
		cfg.Verified = max(min(cfg.Verified, int(cfg.Bytes*3/4/verifiedBytes)), 1)
		cfg.Rejected = max(min(cfg.Rejected, int(cfg.Bytes/4/rejectedBytes)), 1)
	}
	cfg.MaxStale = cmp.Or(cfg.MaxStale, 24*time.Hour)
	s := &KeySets{
		cfg: cfg, fetcher: newFetcher(cfg), verified: newCache(cfg.Verified), rejected: newCache(cfg.Rejected),
		sets: map[string]*keySet{}, uses: map[string]*uses{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Close stops all loading and waits for it. Resolvers continue with the keys that are there.
func (s *KeySets) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

// Stats counts what happened.
func (s *KeySets) Stats() Stats {
	s.mu.Lock()
	sets := len(s.sets)
	s.mu.Unlock()
	hits, misses := uint64(0), uint64(0)
	for _, u := range s.Uses() {
		hits, misses = hits+u.Hits, misses+u.Misses
	}
	c := &s.counters
	return Stats{
		Hits: hits, Misses: misses, Invalid: c.invalid.Load(), Refused: c.refused.Load(),
		Fetches: c.fetches.Load(), Failures: c.failures.Load(),
		Evicted: s.verified.evicted.Load() + s.rejected.evicted.Load(),
		Sets:    sets, Verified: s.verified.len(), Rejected: s.rejected.len(),
	}
}

// Uses returns how often tokens were remembered, for each domain that takes tokens.
func (s *KeySets) Uses() []Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Use, 0, len(s.uses))
	for domain, u := range s.uses {
		all = append(all, Use{Domain: domain, Hits: u.hits.Load(), Misses: u.misses.Load()})
	}
	return all
}

// usesOf returns the counters of a domain.
func (s *KeySets) usesOf(domain string) *uses {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uses[domain] == nil {
		s.uses[domain] = new(uses)
	}
	return s.uses[domain]
}

// Status returns the state of each key set in use, by source.
func (s *KeySets) Status() []SetStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]SetStatus, 0, len(s.sets))
	for _, set := range s.sets {
		set.mu.Lock()
		all = append(all, set.status)
		set.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b SetStatus) int { return cmp.Compare(a.Source, b.Source) })
	return all
}

// retain is the set of a source, which is loaded from now on. A file is read before retain returns: no request waits
// for it on a request's way, and the rules that name it are good from their first request on.
func (s *KeySets) retain(source string) *keySet {
	set, ctx := s.join(source)
	if ctx == nil {
		return set
	}
	wait := time.Duration(0)
	if isFile(source) {
		wait = set.refresh(ctx)
	}
	go func() {
		defer s.running.Done()
		set.keepLoaded(ctx, wait)
	}()
	return set
}

// join counts a user of a set. For a new one it returns the context to load it under, unless nothing is loaded any
// more.
func (s *KeySets) join(source string) (*keySet, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if set := s.sets[source]; set != nil {
		set.users++
		return set, nil
	}
	set := newKeySet(source, s)
	set.users = 1
	ctx, cancel := context.WithCancel(s.ctx)
	set.cancel = cancel
	s.sets[source] = set
	if s.ctx.Err() != nil {
		cancel()
		return set, nil
	}
	s.running.Add(1)
	return set, ctx
}

// release drops a user of a set; without users it is loaded no more.
func (s *KeySets) release(set *keySet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set.users--
	if set.users > 0 {
		return
	}
	set.cancel()
	delete(s.sets, set.source)
}

// lease is a Resolver's hold on its sets. It knows nothing of the Resolver, so it can end when that is garbage.
type lease struct {
	once sync.Once
	sets *KeySets
	held []*keySet
}

func (l *lease) release() {
	l.once.Do(func() {
		for _, set := range l.held {
			l.sets.release(set)
		}
	})
}

// recall is what a token yielded lately.
func (s *KeySets) recall(key cacheKey, now time.Time, u *uses) (grant, bool) {
	at := now.UnixNano()
	g, ok := s.verified.get(&key, at)
	if !ok {
		g, ok = s.rejected.get(&key, at)
	}
	if ok {
		u.hits.Add(1)
	}
	return g, ok
}

// remember keeps what a token yielded. Worthless tokens have a cache of their own: a flood of them makes no client be
// forgotten whose token is good.
func (s *KeySets) remember(key cacheKey, g grant, now time.Time, u *uses) {
	u.misses.Add(1)
	to := s.verified
	if g.user == "" {
		s.counters.invalid.Add(1)
		to = s.rejected
	}
	if g.expires != 0 {
		to.put(&key, g, now.UnixNano())
	}
}

// countRefused counts a request that was refused; without sets, there is nothing to ask.
func (s *KeySets) countRefused() {
	if s != nil {
		s.counters.refused.Add(1)
	}
}

// redacted is a source without its password.
func redacted(source string) string {
	if isFile(source) {
		return source
	}
	at, err := url.Parse(source)
	if err != nil {
		return "(no URL)"
	}
	at.RawQuery = ""
	return at.Redacted()
}
