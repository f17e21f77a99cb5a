package leases

import (
	"hash/maphash"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	span    = 100 * time.Millisecond // in which decisions about a counter are counted, and for which tokens are lent
	hotFrom = 4                      // decisions within span
)

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

// slot is the place of a key. The key has it if its hash is there.
func (l *Leases) slot(key string) (s *slot, hash uint64) {
	hash = maphash.String(l.seed, key)
	return &l.slots[hash%uint64(len(l.slots))], hash
}

// lease returns the lease of a key, or nil.
func (l *Leases) lease(key string) *lease {
	if s, hash := l.slot(key); s.hash == hash {
		return s.lease
	}
	return nil
}

// ask counts a decision that is made in the store, and appends a request that lends if it is time for one.
func (l *Leases) ask(c *limit.Charge, now int64, to []*limit.Request) []*limit.Request {
	s, hash := l.slot(c.Key)
	if s.hash != hash {
		if s.lease != nil || s.wanted != nil || s.hot(now) {
			l.stats.Drops++
			return to
		}
		*s = slot{hash: hash}
	}
	s.count(now, c.Cost)
	tokens := int64(min(s.tokens, float64(c.Lease)))
	if isGate(c) || !s.hot(now) || s.wanted != nil || now < s.pause || tokens < 1 {
		return to
	}
	l.stats.Asks++
	s.wanted = single(limit.Charge{
		Key: strings.Clone(c.Key), Limit: c.Limit, Op: limit.Lend, Cost: tokens, Class: c.Class,
		Parts: parts * int64(max(l.live(c.Share), 1)),
	})
	return append(to, s.wanted)
}

// count counts a decision about so many tokens.
func (s *slot) count(now, tokens int64) {
	rest := s.rest(now)
	s.decisions, s.tokens, s.counted = s.decisions*rest+1, s.tokens*rest+float64(tokens), now
}

// rest is the part of what was counted that has not faded.
func (s *slot) rest(now int64) float64 { return max(1-float64(max(now-s.counted, 0))/float64(span), 0) }

// hot reports whether enough decisions were made lately.
func (s *slot) hot(now int64) bool { return s.decisions*s.rest(now) > hotFrom-1 }
