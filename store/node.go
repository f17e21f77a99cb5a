package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

// node is one server that calls go to, with the breaker in front of it: the only server, the master that the sentinels
// name, a shard of a ring, or a master of a cluster.
type node struct {
	name   string // as metrics and the log call it
	guard  *breaker.Breaker
	client *redis.Client // its connections
	sender sender        // what calls are sent with: its client, or for a cluster the client of them all, which follows redirects
	warmer *warmer       // nil: somebody else's

	since    time.Time // it succeeded another one; zero: it did not
	starving spell     // calls find no connection

	routing int                             // how often the sender asks for the words of a command before it writes it
	seen    func(now time.Time, key string) // told of each call; nil: nobody wants to know
	failed  func()                          // told when a connection was lost, or the breaker kept a call away; nil: nobody wants to know
	resolve func(ctx context.Context)       // looks for the master again, and lets go of the connections to another one; nil: the sender does
}

// sender is a client of go-redis, of one server or of a cluster.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// lost tells those who mend connections why a call failed.
func (n *node) lost(reason string) {
	switch reason {
	case ReasonTimeout, ReasonDial, ReasonClosed, ReasonReadonly:
		if n.warmer != nil {
			n.warmer.wake()
		}
	case ReasonBreaker: // no connection was lost, but the server may have a successor by now
	default:
		return
	}
	if n.failed != nil {
		n.failed()
	}
}

// fleet is the servers of one Servers.
type fleet interface {
	// place is the node that holds a key, and a number that is the same for keys that one call may have together.
	place(key string) (*node, int)
	// nodes are those that are known now, at least one.
	nodes() []*node
	close() error
}

// guards makes the breakers of a store's nodes.
type guards struct {
	config   breaker.Config
	onChange func(shard string, from, to breaker.State, reason string)
}

// guard makes the breaker of one node. It calls closed when the node is back, or nobody if that is nil.
func (g guards) guard(name string, closed func()) *breaker.Breaker {
	c := g.config
	c.OnChange = func(from, to breaker.State, reason string) {
		if to == breaker.Closed && closed != nil {
			closed()
		}
		if g.onChange != nil {
			g.onChange(name, from, to, reason)
		}
	}
	return breaker.New(c)
}

// newFleet sets up the client of these servers. prefix tells the nodes of two stores apart.
func newFleet(s Servers, prefix string, g guards) fleet {
	switch s.Kind {
	case Sentinel:
		return newSentinel(s, prefix, g)
	case Cluster:
		return newCluster(s, prefix, g)
	case Ring:
		return newRing(s, prefix, g)
	}
	return newSolo(s, prefix, g)
}

// solo is one server, or the one that the sentinels name.
type solo struct {
	current atomic.Pointer[node]
	guards  guards
	dialer  *dialer

	sentinels *resolver // nil: none

	mu   sync.Mutex // guards left
	left time.Time  // the connections were let go for the last time
}

func newSolo(s Servers, prefix string, g guards) *solo {
	o := &solo{guards: g}
	options := s.options(s.Addresses[0])
	o.dialer = newDialer(options, o.nudge)
	options.Dialer = o.dialer.connect
	o.start(prefix+s.Addresses[0], redis.NewClient(options), s)
	return o
}

// start begins to use the client.
func (o *solo) start(name string, client *redis.Client, s Servers) {
	n := &node{name: name, guard: o.guards.guard(name, o.dialer.cull), client: client, sender: client, resolve: o.leave}
	if o.sentinels != nil {
		n.resolve = o.sentinels.resolve
	}
	n.warmer = newWarmer(client, s, o.dialer, o.nudge)
	o.current.Store(n)
}

// leavePause is the least time between two times that the connections to a replica are let go: it may well stay one.
const leavePause = 100 * time.Millisecond

// leave lets go of the connections to a server that turned out to be a replica: the way to the address may lead to its master by now. Who
// asks while another one does it waits for that.
func (o *solo) leave(context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Sub(o.left) < leavePause {
		return
	}
	o.left = now
	o.dialer.hangUp()
	o.current.Load().warmer.wake()
}

// nudge tells the breaker that the server can be reached again.
func (o *solo) nudge() {
	if n := o.current.Load(); n != nil {
		n.guard.Nudge()
	}
}

func (o *solo) place(string) (*node, int) { return o.current.Load(), 0 }

func (o *solo) nodes() []*node { return []*node{o.current.Load()} }

func (o *solo) close() error {
	n := o.current.Load()
	o.dialer.cancel() // the library's client of sentinels waits for those it dials
	err := n.client.Close()
	o.dialer.stop()
	n.warmer.stop()
	return err
}
