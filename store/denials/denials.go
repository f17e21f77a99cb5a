// Package denials remembers counters that refused, each until its retry-after: that answers further requests exactly, without a call. Once a
// second one of them is a question to the store all the same, because tokens may have been given back elsewhere.
package denials

import (
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Config sets up Denials. Entries is needed.
type Config struct {
	Entries int   // counters remembered at most
	Bytes   int64 // memory that they take at most; 0: no bound
}

// Stats is what Denials count.
type Stats struct {
	Entries   int64 // counters remembered now
	Bytes     int64 // memory that they take, estimated from above
	Hits      int64 // charges answered here
	Misses    int64 // charges that were not
	Questions int64 // charges that were known to be refused, and asked about again
	Drops     int64 // counters forgotten before their time, because there was no room
}

// Denials is a cache of refusals. It is safe for concurrent use.
type Denials struct{}

// New makes an empty one.
func New(c Config) *Denials { return new(Denials) }

// Refuse decides a request that is known to be refused: by an enforced charge, and each charge that is made even if the request is refused is
// known as well. It changes nothing where the store has to be asked, once a second also for what is known.
func (d *Denials) Refuse(r *limit.Request, now time.Time) bool { return false }

// Known fills in charges of a request that are known to be refused, and reports whether an enforced one is among them. It is called before the
// request is sent, with Decisions cleared: if a second has passed, this request is the question and nothing is filled in. It is called again
// when charges were left undecided, with their Reason: then what is known answers them, quotas too.
func (d *Denials) Known(r *limit.Request, now time.Time) (refused bool) { return false }

// Learn takes in the replies to the charges of a request that was sent, or to a part of it. Sent is an instant before that.
func (d *Denials) Learn(r *limit.Request, sent, now time.Time) {}

// Forget drops what is known of these counters and cool-downs, and what is on its way.
func (d *Denials) Forget(keys []string, now time.Time) {}

// Clear forgets everything, and what is on its way.
func (d *Denials) Clear(now time.Time) {}

// Stats is what was counted so far.
func (d *Denials) Stats() Stats { return Stats{} }
