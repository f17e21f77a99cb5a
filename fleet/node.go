package fleet

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
)

// Node is one server that calls go to, with the breaker in front of it: the only server, the master that the sentinels
// name, a shard of a ring, or a master of a cluster. It is safe for concurrent use.
type Node struct {
	name    string // as metrics and the log call it
	servers *Servers
	bounds  *Bounds
	prelude [][]byte
	dial    func(ctx context.Context) (net.Conn, error)
	guards  guards
	counts  *counts
	host    *host
	onPanic func(fault any)
	routes  *cluster // nil: it is no part of a cluster
	address string   // of a server of a cluster
	lobby   bool     // it stands for the servers of a cluster that are not known yet

	used  atomic.Int64 // process time at which a cluster last named it
	apart atomic.Bool  // it takes the keys of one slot only in one command, so there are no batches

	guard atomic.Pointer[breaker.Breaker]
	since atomic.Int64 // process time at which it succeeded another server; 0: it did not
	heard atomic.Int64 // process time at which it last sent something, on any connection; 0: never
	// silentFrom is the process time since when it has owed something and sent nothing, on any connection; 0: it is not silent.
	silentFrom atomic.Int64
	lacking    spell // calls find no connection
	mute       spell // calls get no reply, though the server may answer greetings and pings
	streams    []*stream
	load       load
	usual      usual

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards all below
	trouble map[*stream]error
	changed chan struct{} // closed when a stream has connected or failed

	leaving sync.Mutex    // held while the connections are let go; guards left
	left    time.Duration // they were let go for the last time
}

// start begins to connect.
func (n *Node) start(dial func(ctx context.Context) (net.Conn, error)) *Node {
	n.dial = dial
	for range n.servers.streams() {
		n.streams = append(n.streams, newStream(n))
	}
	n.running.Add(len(n.streams))
	for _, s := range n.streams {
		go s.run(n.ctx)
	}
	return n
}

// node makes a node without connections.
func (f *Fleet) node(name string) *Node {
	n := &Node{
		name: name, servers: &f.servers, bounds: &f.bounds, prelude: f.prelude, guards: f.guards, counts: &f.counts,
		host: machine, onPanic: f.onPanic,
		trouble: map[*stream]error{}, changed: make(chan struct{}),
	}
	n.load.most = f.bounds.InFlight
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.guard.Store(f.guards.guard(n))
	return n
}

// Name is what metrics and the log call the server.
func (n *Node) Name() string { return n.name }

// Breaker is the state of the breaker in front of the server.
func (n *Node) Breaker() *breaker.Breaker { return n.guard.Load() }

// Overloaded reports whether calls under way are bounded by what the server was seen to do. Then a call's Caller matters.
func (n *Node) Overloaded() bool { return n.load.pace.Load() > 0 }

// succeed makes the node that of another server: what its predecessor did says nothing about it.
func (n *Node) succeed() {
	n.mu.Lock()
	clear(n.trouble)
	n.mu.Unlock()
	n.usual.least.Store(0)
	old := n.guard.Swap(n.guards.guard(n))
	n.settle()
	if state := old.State(); state != breaker.Closed && n.guards.onChange != nil {
		n.guards.onChange(n.name, state, breaker.Closed, "another master")
	}
}

// connected notes that a stream has a link.
func (n *Node) connected(s *stream) {
	n.mu.Lock()
	delete(n.trouble, s)
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
	n.guard.Load().Nudge()
}

// failed notes why a stream has no link.
func (n *Node) failed(s *stream, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trouble[s] = &unsentError{err}
	close(n.changed)
	n.changed = make(chan struct{})
}

// recovered notes that a stream needs no new link: why it could not make one does not matter any more.
func (n *Node) recovered(s *stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.trouble, s)
}

// greeting is what is said on a new connection. Who we are is asked for each of them.
func (n *Node) greeting() greeting {
	g := greeting{prelude: n.prelude}
	user, password := n.servers.Username, n.servers.Password
	if n.servers.Credentials != nil {
		user, password = n.servers.Credentials()
	}
	switch {
	case user != "":
		g.needed = append(g.needed, command("AUTH", user, password))
	case password != "":
		g.needed = append(g.needed, command("AUTH", password))
	}
	if n.servers.DB != 0 {
		g.needed = append(g.needed, command("SELECT", number(n.servers.DB)))
	}
	return g
}

// silence is how long the server may send nothing while it owes replies. It is more where the server usually takes long.
func (n *Node) silence() time.Duration {
	return max(n.bounds.Silence, min(n.usual.bound(), n.bounds.Patience))
}

// leavePause is the least time between two times that the connections to a replica are let go: it may well stay one.
const leavePause = 100 * time.Millisecond

// leave lets go of the connections to a server that turned out to be a replica: there may be another master by now. A caller that comes
// while another one does so waits for that. It reports whether it let them go: not if that was done a moment ago.
func (n *Node) leave() bool {
	n.leaving.Lock()
	defer n.leaving.Unlock()
	now := processTime()
	if n.left > 0 && now-n.left < leavePause {
		return false
	}
	n.left = now
	for _, s := range n.streams {
		s.leave()
	}
	return true
}

// ask asks for a sign of life on the other links, when the server has sent nothing on one for a while.
func (n *Node) ask(quiet *link) { n.others(quiet, (*link).ping) }

// doubt suspects the other links on which the server has sent nothing since they were asked, when it is silent on one.
func (n *Node) doubt(silent *link, asked time.Duration) {
	n.others(silent, func(l *link) { l.doubt(asked) })
}

// others calls f for the links of the other streams.
func (n *Node) others(than *link, f func(*link)) {
	for _, s := range n.streams {
		if l := s.link.Load(); l != nil && l != than && !l.retired.Load() && !l.silent.Load() {
			f(l)
		}
	}
}

// spill is how many calls a link has under way before another one is used, too: as long as one link can do it, calls go together.
const spill = 512

// best is the link for the next call, nil if there is none.
func (n *Node) best() *link {
	var best *link
	for _, s := range n.streams {
		l := s.link.Load()
		if l == nil || !l.usable() {
			continue
		}
		load := l.flights.Load()
		if load < spill {
			return l
		}
		if best == nil || load < best.flights.Load() {
			best = l
		}
	}
	return best
}

// connectIn is how long a call waits for a connection that is being made: a quarter of the time for which a server may be silent, or some
// round trips where it is far away. The first connection is waited for as long as the call can.
func (n *Node) connectIn() time.Duration {
	if n.heard.Load() == 0 {
		return n.bounds.Patience
	}
	return max(n.bounds.Silence/4, 6*n.usual.time())
}

// pick is a link for a call. Where there is none, because it is being made, it waits.
func (n *Node) pick(deadline time.Duration) (*link, error) {
	if l := n.best(); l != nil {
		return l, nil
	}
	var timer *time.Timer
	for {
		changed, err := n.hope()
		if l := n.best(); l != nil {
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		if timer == nil {
			n.counts.waited.Add(1)
			timer = time.NewTimer(min(deadline-processTime(), n.connectIn()))
			defer timer.Stop()
		}
		select {
		case <-changed:
		case <-timer.C:
			n.counts.lacked.Add(1)
			return nil, errNoLink
		case <-n.ctx.Done():
			return nil, errClosed
		}
	}
}

// hope returns what is closed when there may be a link, or why there is none and waiting has no point.
func (n *Node) hope() (changed chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return nil, errClosed
	}
	for _, s := range n.streams {
		l := s.link.Load()
		switch {
		case l != nil && (l.silent.Load() || l.suspect.Load()):
			err = errSilent
		case n.trouble[s] != nil:
			err = n.trouble[s]
		default:
			return n.changed, nil
		}
	}
	return n.changed, err
}

// Send sends a call beside the breaker, and waits for the reply for at most so long.
func (n *Node) Send(c *Call, allow time.Duration) error {
	t, ok := n.load.enter(c, allow, n.usual.lined())
	if !ok {
		n.counts.rejected.Add(1)
		return errOverload
	}
	defer n.load.leave(t)
	deadline := processTime() + allow
	// Where a link is ready the whole time is left for the reply: if some has passed, this process did not run.
	for l, left := n.best(), allow; ; l = nil {
		if l == nil {
			var err error
			l, err = n.pick(deadline)
			if err != nil {
				return err
			}
			left = deadline - processTime()
			if left <= 0 {
				return errNoLink
			}
		}
		if l.flights.Load() >= 2*n.load.most {
			n.counts.rejected.Add(1)
			return errOverload
		}
		c.begin()
		if !l.send(c, processTime(), left) {
			continue
		}
		err := <-c.done
		if !errors.Is(err, errUnsent) {
			return err
		}
	}
}

// Ask sends a command beside the breaker, to where its first key is now, and waits for the reply for at most so long.
func (n *Node) Ask(allow time.Duration, key string, words ...string) (Reply, error) {
	c := &Call{Wire: command(words...), Key: key}
	err := n.exchange(c, allow)
	if err != nil {
		return Reply{}, err // a late reply may be written into the call just now
	}
	return c.Reply, nil
}

// Do sends a call behind the breaker, to where its key is now, and waits for the reply for at most so long. The context is only asked
// whether the caller hung up, and when it has to have its answer. That is on the caller's clock: halfway between the end of the patience and
// the deadline the wait ends, also where this process had too little of the processors to use up its patience.
func (n *Node) Do(ctx context.Context, c *Call, allow time.Duration) error {
	var fault error
	c.began, c.spent, c.until = 0, 0, 0
	if deadline, ok := ctx.Deadline(); ok {
		c.until = processTime() + (allow+time.Until(deadline))/2
	}
	err := n.guard.Load().Do(func() breaker.Result {
		fault = n.exchange(c, allow)
		return n.evidence(ctx, c, allow, fault)
	})
	if err != nil {
		fault = err
	}
	if fault != nil && n.routes != nil {
		n.routes.heard(fault)
	}
	return fault
}

// exchange sends a call, and sends it once more after replies that prove that nothing has run: when the server turns out to be a
// replica, because there may be a new master by now, and where a cluster says that the key is elsewhere.
func (n *Node) exchange(c *Call, allow time.Duration) error {
	c.asking, c.moved = false, false
	if n.routes != nil {
		return n.routes.exchange(n, c, allow)
	}
	err := n.Send(c, allow)
	if !IsReply(err, "READONLY") {
		return err
	}
	n.leave()
	return n.Send(c, allow-c.spent)
}

// close ends the connections and waits for what runs.
func (n *Node) close() {
	n.cancel()
	n.running.Wait()
}

// healthy reports whether the node has a link that answers.
func (n *Node) healthy() bool { return n.best() != nil }

// ready waits until the node has a link, or could not make one.
func (n *Node) ready(ctx context.Context) {
	for {
		changed, err := n.hope()
		if err != nil || n.healthy() {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
