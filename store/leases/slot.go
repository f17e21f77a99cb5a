package leases

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

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

// slot is the place of a counter by its hash. It counts how often the counter is asked about.
type slot struct {
	hash      uint64
	decisions float64        // within span: older ones have faded
	tokens    float64        // likewise
	counted   int64          // when that was, in ns since start
	pause     int64          // nothing is lent before, in ns since start
	wanted    *limit.Request // that lends, and is on its way
	lease     *lease
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
func (s *stripe) ask(hash uint64, c *limit.Charge, now int64) *limit.Request {
	found := s.slot(hash)
	if found.hash != hash {
		if found.lease != nil || found.wanted != nil || found.hot(now) {
			s.stats.Drops++
			return nil
		}
		*found = slot{hash: hash}
	}
	found.count(now, c.Cost)
	tokens := int64(min(found.tokens, float64(c.Lease)))
	if isGate(c) || !found.hot(now) || found.wanted != nil || now < found.pause || tokens < 1 {
		return nil
	}
	s.stats.Asks++
	found.wanted = single(limit.Charge{
		Key: strings.Clone(c.Key), Limit: c.Limit, Op: limit.Lend, Cost: tokens, Class: c.Class, Share: c.Share,
	})
	return found.wanted
}

// count counts a decision about so many tokens.
func (s *slot) count(now, tokens int64) {
	rest := s.rest(now)
	s.decisions, s.tokens, s.counted = s.decisions*rest+1, s.tokens*rest+float64(tokens), now
}

// rest is the part of what was counted that has not faded.
func (s *slot) rest(now int64) float64 {
	return math.Exp(-float64(max(now-s.counted, 0)) / float64(span))
}

// hot reports whether enough decisions were made lately.
func (s *slot) hot(now int64) bool { return s.decisions*s.rest(now) > hotFrom-1 }
