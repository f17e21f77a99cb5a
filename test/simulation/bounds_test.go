package simulation

import "time"

// bounds are what the product promises, in one place: another product is judged by other numbers.
type bounds struct {
	patience   time.Duration // an answer waits for Redis no longer
	repaired   time.Duration // after the last fault, Redis decides again within it
	lease      time.Duration // tokens can be spent so long after Redis was asked for them
	goroutines int           // of a sidecar: so many more may run when all is calm
	memory     uint64        // of a sidecar
	leaseTail  time.Duration // tokens that were lent before an event can be spent so long after it
	denial     time.Duration // a denial outlives its reason by this at most
	lateRefund time.Duration // a refund may be on its way so long when its caller has left
	givenBack  time.Duration // what a refused request took is given back within it, or a fault keeps it from that
	arrives    time.Duration // what was sent may arrive so long after its caller has left
	// what a sidecar knows of the servers' clock is late by the way of a reply and this at most
	clockLate   time.Duration
	stepBack    time.Duration // a smaller step back of that clock is not believed
	clockCaught time.Duration // a server's clock that was set back has caught up
	conns       int           // a sidecar has at most so many connections to one server: for batches, and cold ones
	subscribed  int           // and for messages, to all servers together
}

var promised = bounds{
	patience:    100 * time.Millisecond,
	repaired:    2 * time.Second,
	lease:       200 * time.Millisecond,
	goroutines:  5,
	memory:      6 << 20,
	leaseTail:   200 * time.Millisecond,
	denial:      time.Second,
	lateRefund:  5 * time.Second,
	givenBack:   500 * time.Millisecond,
	arrives:     10 * time.Second,
	clockLate:   2 * time.Millisecond,
	stepBack:    250 * time.Millisecond,
	clockCaught: 6 * time.Second,
	conns:       4 + 2,
	subscribed:  1,
}

// The phases of a simulation.
const (
	warm    = 2500 * time.Millisecond // before the first fault: sidecars count each other
	calmFor = 8 * time.Second         // after the last repair
)
