package leases

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Counters have places by their hash.
const (
	stripeCount = 64
	slotCount   = 128 // of a stripe

	span    = 100 * time.Millisecond // in which decisions about a counter are counted, and for which tokens are lent
	hotFrom = 4                      // decisions within span
)

// stripe is a part of the counters.
type stripe struct {
	mu    sync.Mutex // guards all below, and the leases
	slots [slotCount]slot
	held  []*lease
	stats Stats // but for Keys and Tokens
}

// slot counts how often a counter is asked about, in the present span and in the one before.
type slot struct {
	hash         uint64
	number       int64 // of the present span, since start
	decisions    int64
	decisionsOld int64
	tokens       int64
	tokensOld    int64
	pause        int64          // nothing is lent before, in ns since start
	wanted       *limit.Request // that lends, and is on its way
	lease        *lease
}

func (l *Leases) stripe(hash uint64) *stripe { return &l.stripes[hash%stripeCount] }

// lockOf locks the stripe of a key.
func (l *Leases) lockOf(key string) (s *stripe, hash uint64) {
	hash = maphash.String(l.seed, key)
	s = l.stripe(hash)
	s.mu.Lock()
	return s, hash
}

// lock locks stripes in the order of their numbers, so that no two callers wait for each other.
func (l *Leases) lock(stripes uint64) {
	for ; stripes != 0; stripes &= stripes - 1 {
		l.stripes[bits.TrailingZeros64(stripes)].mu.Lock()
	}
}

func (l *Leases) unlock(stripes uint64) {
	for ; stripes != 0; stripes &= stripes - 1 {
		l.stripes[bits.TrailingZeros64(stripes)].mu.Unlock()
	}
}

// holdLocked begins a lease.
func (l *Leases) holdLocked(s *stripe, at *slot, h *lease) {
	h.slot, h.place = at, len(s.held)
	at.lease = h
	s.held = append(s.held, h)
	l.held.Add(1)
}

// slot is the place of a hash.
func (s *stripe) slot(hash uint64) *slot { return &s.slots[hash>>32%slotCount] }

// lease returns the lease of a hash, or nil.
func (s *stripe) lease(hash uint64) *lease {
	if at := s.slot(hash); at.hash == hash {
		return at.lease
	}
	return nil
}

// ask counts a decision that is made in the store, and returns a request that lends if it is time for one.
func (s *stripe) ask(hash uint64, c *limit.Charge, now instant) *limit.Request {
	found := s.slot(hash)
	if found.hash != hash {
		if found.lease != nil || found.wanted != nil || found.hot(now.mono) {
			s.stats.Drops++
			return nil
		}
		*found = slot{hash: hash}
	}
	found.count(now.mono, c.Cost)
	if isGate(c) || !found.hot(now.mono) || found.wanted != nil || now.mono < found.pause {
		return nil
	}
	tokens := min(recent(found.tokens, found.tokensOld, now.mono), c.Lease)
	if tokens < 1 {
		return nil
	}
	s.stats.Asks++
	found.wanted = single(limit.Charge{
		Key: strings.Clone(c.Key), Limit: c.Limit, Op: limit.Lend, Cost: tokens, Class: c.Class, Share: c.Share,
	})
	return found.wanted
}

// roll makes the span of an instant the present one.
func (s *slot) roll(now int64) {
	number := now / int64(span)
	switch {
	case number == s.number+1:
		s.decisionsOld, s.tokensOld = s.decisions, s.tokens
	case number > s.number:
		s.decisionsOld, s.tokensOld = 0, 0
	default:
		return
	}
	s.number, s.decisions, s.tokens = number, 0, 0
}

// count counts a decision about so many tokens.
func (s *slot) count(now, tokens int64) {
	s.roll(now)
	s.decisions++
	s.tokens += min(tokens, limit.MaxCount)
}

// hot reports whether enough decisions were made lately.
func (s *slot) hot(now int64) bool {
	s.roll(now)
	return recent(s.decisions, s.decisionsOld, now) >= hotFrom
}

// recent is the number within the last span, if that of the span before was spread evenly; rounded up.
func recent(present, before, now int64) int64 {
	rest := int64(span) - now%int64(span)
	return present + int64((float64(before)*float64(rest)+float64(span)-1)/float64(span))
}
