package simulation

import "time"

// bounds are what the product promises, in one place: another product is judged by other numbers.
type bounds struct {
	patience    time.Duration // an answer without a deadline comes within it
	hotPatience time.Duration // the same where tokens are leased: a call may wait for a lease, and then for its own reply
	repaired    time.Duration // after the last fault, Redis decides again within it
	lease       time.Duration // tokens can be spent so long after Redis was asked for them
	goroutines  int           // of a sidecar: so many more may run when all is calm
	memory      uint64        // of a sidecar
	leaseTail   time.Duration // tokens that were lent before an event can be spent so long after it
	lateRefund  time.Duration // a refund may be on its way so long when its caller has left
	debtsPaid   time.Duration // what was admitted without Redis is charged so long afterwards
	denial      time.Duration // a denial outlives its reason by this at most
	clockCaught time.Duration // a server's clock that was set back has caught up
	waits       time.Duration // times its deadline a call may take where it waits for more than one reply: a known fault
	conns       int           // a sidecar of a cluster may have so many more connections than before
	hotShare    int64         // percent by which leases may exceed a share: they are counted in sums, a moment later
}

var promised = bounds{
	patience:    110 * time.Millisecond,
	hotPatience: 210 * time.Millisecond,
	repaired:    4 * time.Second,
	lease:       200 * time.Millisecond,
	goroutines:  5,
	memory:      6 << 20,
	leaseTail:   250 * time.Millisecond,
	lateRefund:  5 * time.Second,
	debtsPaid:   10 * time.Second,
	denial:      time.Second,
	clockCaught: 6 * time.Second,
	waits:       6,
	conns:       3,
	hotShare:    1,
}

// The phases of a simulation.
const (
	warm    = 2500 * time.Millisecond // before the first fault: sidecars count each other
	calmFor = 8 * time.Second         // after the last repair
)
