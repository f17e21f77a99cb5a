// Package fleet is how Redis servers are reached: one server, the master that sentinels name, a cluster, a ring. Calls share a few
// long-lived connections per server, which are made before they are needed. A server that is silent or lost is found out, a
// reply that comes late is still read, and a breaker keeps calls away from a server that is down. Package fleet carries commands and
// does not know what they mean.
package fleet

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
)

// Defaults of Bounds.
const (
	defaultSilence  = 10 * time.Millisecond
	defaultPatience = 100 * time.Millisecond
	defaultInFlight = 8192
)

// Bounds are how long servers are waited for. The zero value works.
type Bounds struct {
	Silence  time.Duration // a server that owes replies and sends nothing for so long is silent; default 10 ms, and at least four times its usual reply time
	Patience time.Duration // the longest wait for one reply while replies flow; default 100 ms
	InFlight int64         // calls under way to one server at most; default 8192
}

func (b Bounds) withDefaults() Bounds {
	b.Silence = positive(b.Silence, defaultSilence)
	b.Patience = max(positive(b.Patience, defaultPatience), b.Silence)
	b.InFlight = positive(b.InFlight, defaultInFlight)
	return b
}

// positive is n, or the default when n is not set.
func positive[T int | int64 | time.Duration](n, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return n
}

// Config sets up a Fleet. The zero value works, against a server on this machine.
type Config struct {
	Servers
	Bounds
	Prefix  string         // begins the names of the nodes, to tell two fleets apart
	Prelude [][]string     // commands sent on each new connection before it is used; whether one fails shows in the calls
	Breaker breaker.Config // of the breaker in front of each server; the zero value has one. OnBreaker takes the place of its OnChange

	OnBreaker func(server string, from, to breaker.State, reason string) // called for each change of a server's breaker; must not block
	// OnPanic is called after a panic in the background. Nil: the panic ends the process.
	OnPanic func(fault any)
}

// Fleet is the servers of one Config. It is safe for concurrent use.
type Fleet struct {
	servers Servers
	bounds  Bounds
	prefix  string
	prelude [][]byte
	guards  guards
	counts  counts
	onPanic func(fault any)
	topology
}

// counts outlive the nodes that they are about.
type counts struct {
	opened, ended  atomic.Int64 // connections
	waited, lacked atomic.Int64 // calls that had to wait for a connection, and those that got none in time
	rejected       atomic.Int64 // calls that were not sent
}

// topology is how the servers of a fleet stand together.
type topology interface {
	// Place is the node that holds a key, and a number that is the same for keys that one call may have together.
	Place(key string) (*Node, int)
	// Nodes are those that are known now, at least one.
	Nodes() []*Node
	// Close ends the connections and waits for what runs. Later calls fail.
	Close()
}

// New begins to connect, and returns at once.
func New(c Config) *Fleet {
	quiet()
	bounds := c.Bounds.withDefaults()
	f := &Fleet{servers: c.Servers.withDefaults(bounds), bounds: bounds, prefix: c.Prefix, guards: guards{c.Breaker,
		c.OnBreaker}, onPanic: c.OnPanic}
	for _, words := range c.Prelude {
		f.prelude = append(f.prelude, command(words...))
	}
	switch f.servers.Kind {
	case Sentinel:
		f.topology = newSentinel(f)
	case Cluster:
		f.topology = newCluster(f)
	case Ring:
		f.topology = newRing(f)
	default:
		f.topology = newSolo(f, f.servers.Addresses[0])
	}
	return f
}

// Ready waits until calls can be sent to every server, or it is known that they cannot.
func (f *Fleet) Ready(ctx context.Context) {
	if c, ok := f.topology.(*cluster); ok {
		c.known(ctx)
	}
	for _, n := range f.Nodes() {
		n.ready(ctx)
	}
}

// Everywhere reports whether every node has its own copy of a key: of a ring, where each server stands alone.
func (f *Fleet) Everywhere() bool { return f.servers.Kind == Ring }

// Stats is what a Fleet counts about itself.
type Stats struct {
	Connections   int64 // open now
	Idle          int64 // of these, without a call
	Opened, Ended int64 // connections so far
	InFlight      int64 // calls that wait for a reply
	Waited        int64 // calls that found no connection ready and waited for one
	Lacked        int64 // of these, calls that got none in time
	Rejected      int64 // calls that were not sent, because more were under way than can be answered in time
}

// Stats is what the fleet has counted so far.
func (f *Fleet) Stats() Stats {
	s := Stats{
		Opened: f.counts.opened.Load(), Ended: f.counts.ended.Load(), Waited: f.counts.waited.Load(),
		Lacked: f.counts.lacked.Load(), Rejected: f.counts.rejected.Load(),
	}
	s.Connections = s.Opened - s.Ended
	for _, n := range f.Nodes() {
		s.InFlight += n.load.flight.Load()
		for _, stream := range n.streams {
			if l := stream.link.Load(); l != nil && l.usable() && l.flights.Load() == 0 {
				s.Idle++
			}
		}
	}
	return s
}

// Add adds the numbers of another fleet.
func (s *Stats) Add(o Stats) {
	s.Connections += o.Connections
	s.Idle += o.Idle
	s.Opened += o.Opened
	s.Ended += o.Ended
	s.InFlight += o.InFlight
	s.Waited += o.Waited
	s.Lacked += o.Lacked
	s.Rejected += o.Rejected
}

// guards makes the breakers of a fleet's nodes.
type guards struct {
	config   breaker.Config
	onChange func(server string, from, to breaker.State, reason string)
}

// guard makes the breaker of one node. What becomes of it after another one has taken its place is not told.
func (g guards) guard(n *Node) (made *breaker.Breaker) {
	c := g.config
	c.OnChange = func(from, to breaker.State, reason string) {
		if g.onChange != nil && n.guard.Load() == made {
			g.onChange(n.name, from, to, reason)
		}
	}
	made = breaker.New(c)
	return made
}

func number(n int) string { return strconv.Itoa(n) }
