// Package leases spends tokens that were taken ahead: of a counter that is asked about often, a request beside the next one lends some, and
// the decisions that follow are made here. What is lent is charged already, so nothing is admitted beyond the limit; what is not spent goes
// back. There is no network and no goroutine here: the caller sends what Around and Ended return.
package leases

import (
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Config sets up Leases. The zero value works.
type Config struct {
	Live func(domain string) int // how many sidecars share the counters of a domain; nil: this one alone
}

// Stats is what Leases count.
type Stats struct {
	Keys      int64 // counters of which tokens are held now
	Tokens    int64 // that are held now
	Decisions int64 // charges that were decided here
	Asks      int64 // requests that lend
	Granted   int64 // tokens lent
	Returned  int64 // tokens that went back unspent
	Expired   int64 // tokens that were neither spent nor returned
	Drops     int64 // hot counters for which there was no place
}

// Leases holds tokens. It is safe for concurrent use.
type Leases struct{}

// New makes one that holds nothing.
func New(c Config) *Leases { return new(Leases) }

// Spend decides a request if tokens of all its charges are held and there are enough. Else it changes nothing.
func (l *Leases) Spend(r *limit.Request, now time.Time) bool { return false }

// Around returns what is to be sent in one call with a request: in front of it what goes back of its counters, behind it what lends again.
// Each is a request of its own with one charge. Granted has to be called once with each of the second kind.
func (l *Leases) Around(r *limit.Request, now time.Time) (before, after []*limit.Request) { return nil, nil }

// Granted takes in what became of a request that lends: granted, refused, undecided or never sent. It is called once, when that is known,
// however late. Sent is an instant before the call was sent.
func (l *Leases) Granted(after *limit.Request, sent time.Time) {}

// Learn takes in the reply to a request itself: a domain's penalty that refuses nothing is not asked about again while tokens are held.
func (l *Leases) Learn(r *limit.Request, sent time.Time) {}

// Lost counts what could not be returned: requests of Around (before), of Ended or of Clear that certainly or perhaps did not run.
func (l *Leases) Lost(before ...*limit.Request) {}

// Ended returns what is to be sent now: what is left of leases that are over soon or not used. It is called every 10 ms or so.
func (l *Leases) Ended(now time.Time) []*limit.Request { return nil }

// End forgets the leases of counters that are reset, and voids grants on their way. It is called before the reset and after it.
func (l *Leases) End(keys []string) {}

// Clear ends all leases, and returns what is to be sent.
func (l *Leases) Clear() []*limit.Request { return nil }

// Stats is what was counted so far.
func (l *Leases) Stats() Stats { return Stats{} }
