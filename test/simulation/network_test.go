package simulation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

var errEOF = io.EOF

// network is the links between sidecars and servers. A link has two ways, which are hurt apart from each other.
// Faults of one kind may overlap: they are counted.
type network struct {
	mu      sync.Mutex // guards all below
	servers map[string]func(*conn)
	links   map[[2]string]*link
	random  *rand.Rand
	open    int // connections that one end has not closed
	dials   int
}

func newNetwork(random *rand.Rand) *network {
	return &network{servers: map[string]func(*conn){}, links: map[[2]string]*link{}, random: random}
}

// link is all connections from one place to another.
type link struct {
	network  *network
	up, down *way // to the server, and back

	mu      sync.Mutex // guards all below
	conns   map[*conn]bool
	refused int // faults that refuse connections
}

// way is one direction of a link.
type way struct {
	link *link

	mu      sync.Mutex // guards all below
	cuts    int        // faults that let nothing pass: it arrives when they are over
	latency time.Duration
	jitter  time.Duration
	lossy   float64 // part of the writes that are lost with their connection
}

const usualLatency = 200 * time.Microsecond

func (n *network) link(from, to string) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := [2]string{from, to}
	if n.links[at] == nil {
		l := &link{network: n, conns: map[*conn]bool{}}
		l.up = &way{link: l, latency: usualLatency}
		l.down = &way{link: l, latency: usualLatency}
		n.links[at] = l
	}
	return n.links[at]
}

// draw is a random number, at least 0 and less than 1.
func (n *network) draw() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.random.Float64()
}

func (w *way) cut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts > 0
}

func (w *way) delay() time.Duration {
	w.mu.Lock()
	latency, jitter := w.latency, w.jitter
	w.mu.Unlock()
	if jitter > 0 {
		latency += time.Duration(w.link.network.draw() * float64(jitter))
	}
	return latency
}

// loses reports whether the next write is lost with its connection.
func (w *way) loses() bool {
	w.mu.Lock()
	lossy := w.lossy
	w.mu.Unlock()
	return lossy > 0 && w.link.network.draw() < lossy
}

// change changes a way, and wakes who reads from it.
func (w *way) change(f func(w *way)) {
	w.mu.Lock()
	f(w)
	w.mu.Unlock()
	for _, c := range w.link.all() {
		c.wake()
		c.peer.wake()
	}
}

func (l *link) all() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return inOrder(l.conns)
}

// inOrder are connections in the order in which they were made: that of a map by pointers is another one in each run.
func inOrder(conns map[*conn]bool) []*conn {
	return slices.SortedFunc(maps.Keys(conns), func(a, b *conn) int { return cmp.Compare(a.number, b.number) })
}

// resetAll resets every connection of the link.
func (l *link) resetAll() {
	for _, c := range l.all() {
		c.reset()
	}
}

func (l *link) refuse(by int) {
	l.mu.Lock()
	l.refused += by
	l.mu.Unlock()
}

// forget notes that an end was closed.
func (l *link) forget(c *conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	l.network.mu.Lock()
	l.network.open--
	l.network.mu.Unlock()
}

// serve lets a server take connections, each in a goroutine of its own; nil: it refuses them.
func (n *network) serve(name string, take func(*conn)) {
	n.mu.Lock()
	n.servers[name] = take
	n.mu.Unlock()
}

// dialer makes connections, as a net.Dialer does.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialer connects from a place. It waits a round trip, and longer where a way is cut.
func (n *network) dialer(from string, within time.Duration) dialer {
	return func(ctx context.Context, _, to string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		l := n.link(from, to)
		err := l.reach(ctx)
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		take := n.servers[to]
		n.dials++
		number := n.dials
		n.mu.Unlock()
		l.mu.Lock()
		refused := l.refused > 0
		l.mu.Unlock()
		if take == nil || refused {
			return nil, syscall.ECONNREFUSED
		}
		near, far := l.pair(number, fmt.Sprintf("%s:%d", from, number), to)
		go take(far)
		return near, nil
	}
}

// reach waits until both ways let something pass, a round trip long at least.
func (l *link) reach(ctx context.Context) error {
	for {
		wait := time.NewTimer(l.up.delay() + l.down.delay())
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
		if !l.up.cut() && !l.down.cut() {
			return nil
		}
		again := time.NewTimer(20 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
		}
	}
}

// pair makes a connection.
func (l *link) pair(number int, from, to string) (near, far *conn) {
	near = &conn{number: 2 * number, link: l, way: l.down, name: addr(from), note: make(chan struct{}, 1)}
	far = &conn{number: 2*number + 1, link: l, way: l.up, name: addr(to), note: make(chan struct{}, 1), peer: near}
	near.peer = far
	l.mu.Lock()
	l.conns[near], l.conns[far] = true, true
	l.mu.Unlock()
	l.network.mu.Lock()
	l.network.open += 2
	l.network.mu.Unlock()
	return near, far
}

// count is how many connections there are between two places.
func (n *network) count(from, to string) int {
	return len(n.link(from, to).all()) / 2
}

// listener is a port that nothing connects to.
type listener struct {
	once sync.Once
	done chan struct{}
	at   string
}

func newListener(at string) *listener { return &listener{done: make(chan struct{}), at: at} }

func (l *listener) Accept() (net.Conn, error) {
	<-l.done
	return nil, net.ErrClosed
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.at) }
