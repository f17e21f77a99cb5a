package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// When key sets are loaded again.
const (
	usualRefresh = 5 * time.Minute  // after an answer without a max-age
	minRefresh   = time.Minute      // bounds of the max-age of an answer
	maxRefresh   = time.Hour        //
	refreshGap   = 30 * time.Second // at least, between two fetches of one set
	filePoll     = 5 * time.Second  // of a file, which is cheap to read
	// when no server could be reached, before the first keys; doubles up to refreshGap
	firstRetry = time.Second
)

// keySet is one source of keys. One goroutine loads it; requests read what is there.
type keySet struct {
	source  string
	owner   *KeySets
	users   int // guarded by owner.mu
	cancel  context.CancelFunc
	current atomic.Pointer[keys]
	wanted  chan struct{} // holds one when a key was missed

	// Only the goroutine that loads touches these.
	digest   [sha256.Size]byte // of the document that is in use
	loaded   time.Time         // when it was last confirmed; zero: never
	failures int               // in a row

	mu     sync.Mutex // guards status
	status SetStatus
}

func newKeySet(source string, owner *KeySets) *keySet {
	s := &keySet{source: source, owner: owner, wanted: make(chan struct{}, 1)}
	s.current.Store(&keys{})
	s.status.Source = redacted(source)
	return s
}

// want asks for a refresh because of a key that is not there. It never waits.
func (s *keySet) want() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// keepLoaded keeps the set loaded until ctx ends, first after wait. However many keys are missed, fetches lie
// refreshGap apart.
func (s *keySet) keepLoaded(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	last, wanted := time.Now(), s.wanted
	for {
		select {
		case <-ctx.Done():
			return
		case <-wanted:
			wanted = nil // a flood of misses wakes this loop once
			due := refreshGap - time.Since(last)
			if remaining := time.Until(last.Add(wait)); due < remaining {
				timer.Reset(max(due, 0))
			}
		case <-timer.C:
			last = time.Now()
			wait = s.refresh(ctx)
			s.forget()
			timer.Reset(wait - time.Since(last))
			wanted = s.wanted
		}
	}
}

// forget drops a wish that came while the set was being loaded.
func (s *keySet) forget() {
	select {
	case <-s.wanted:
	default:
	}
}

// refresh loads the set once and returns how long after its start it should be loaded again.
func (s *keySet) refresh(ctx context.Context) time.Duration {
	c := &s.owner.counters
	c.fetches.Add(1)
	wait, err := s.load(ctx)
	if ctx.Err() != nil {
		return usualRefresh
	}
	if err == nil {
		s.failures = 0
		s.recordRefresh(nil)
		return wait - jitter(wait)
	}
	c.failures.Add(1)
	s.failures++
	if len(s.current.Load().all) > 0 && time.Since(s.loaded) >= s.owner.cfg.MaxStale {
		s.replace(&keys{})
		s.digest = [sha256.Size]byte{}
	}
	s.recordRefresh(err)
	return s.retry(err)
}

// retry is when to try again after a failure. A source that was reached is left alone for refreshGap and longer; one
// that was not does not notice, and at the start, when the network may still be coming up, the first keys are worth a
// few tries.
func (s *keySet) retry(err error) time.Duration {
	if isFile(s.source) {
		return filePoll
	}
	doublings := min(s.failures-1, 10)
	if s.loaded.IsZero() && unreached(err) {
		return min(firstRetry<<doublings, refreshGap)
	}
	wait := min(refreshGap<<doublings, usualRefresh)
	return wait + jitter(wait)
}

// unreached reports whether an error means that no connection was made.
func unreached(err error) bool {
	of, ok := errors.AsType[*net.OpError](err)
	return ok && of.Op == "dial"
}

// jitter is a random tenth at most, so that a fleet that started together does not ask together.
func jitter(d time.Duration) time.Duration { return rand.N(d/10 + 1) }

// load gets the document and replaces the keys as a whole if it changed; otherwise the last good ones stay. A document
// that makes the reader panic is one that cannot be read.
func (s *keySet) load(ctx context.Context) (wait time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read the key set: panic: %v", p)
		}
	}()
	document, wait, err := s.owner.fetcher.get(ctx, s.source)
	if err != nil {
		return 0, err
	}
	digest := sha256.Sum256(document)
	if digest != s.digest {
		next, err := parseKeys(document)
		if err != nil {
			return 0, err
		}
		s.replace(next)
		s.digest = digest
	}
	s.loaded = time.Now()
	return wait, nil
}

// replace publishes keys under a new generation, which ends what was remembered of the old ones.
func (s *keySet) replace(next *keys) {
	next.generation = s.current.Load().generation + 1
	s.current.Store(next)
}

// recordRefresh records a refresh and calls the listener.
func (s *keySet) recordRefresh(err error) {
	keys := len(s.current.Load().all)
	s.mu.Lock()
	s.status.Keys, s.status.Loaded, s.status.Err = keys, s.loaded, err
	s.mu.Unlock()
	if tell := s.owner.cfg.OnRefresh; tell != nil {
		tell(s.status.Source, keys, err)
	}
}
