// Package connlimit bounds what peers hold of a process through their connections. One budget of bytes is for the
// connections of all listeners, for what they have sent that is not complete, and for answers that they have not
// taken. When it is full, the address that holds most gives way: of its connections the one that holds most or, where
// all hold little, the one whose last answer is oldest. So there is always room for a new peer.
package connlimit

import (
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	unfinishedMost = 10 * time.Second // how long a request may take to arrive
	sweepEvery     = time.Second
	closedLogged   = 10 * time.Second // between two lines of the log
	fullFor        = time.Minute      // how long Full reports true after a connection was closed

	freeBytes = 64 << 10 // what a connection may hold of unfinished messages while the budget is full
	turnBytes = 8 << 20  // what the one connection may hold whose turn it is
	largeHold = 16       // a connection that holds more than one part in so many of the budget goes first
)

// Reason is why a connection was closed.
type Reason int

// The reasons.
const (
	Room       Reason = iota // there were too many, or they held too much
	Unfinished               // a request of it was not complete in time
	reasons
)

var reasonWords = [reasons]string{"room", "unfinished"}

// String is the word of the reason.
func (r Reason) String() string { return reasonWords[r] }

// Stats is what peers hold.
type Stats struct {
	Open   map[string]int64 `metric:"connections" label:"port" help:"Connections that peers have, by port."`
	Bytes  int64            `metric:"connection_bytes" help:"Memory of connections with what is unfinished, estimated."`
	Most   int64            `metric:"connection_bytes_most" help:"Memory that they may take; the memory limit sets it."`
	Closed map[string]int64 `metric:"connections_closed_total" label:"reason" help:"Connections closed, by reason."`
}

// Limit is the budget. Make one with New. It is safe for concurrent use.
type Limit struct {
	most   int64
	log    *slog.Logger
	began  time.Time
	held   atomic.Int64
	closed [reasons]atomic.Int64
	full   atomic.Int64 // when a connection was last closed for room, in ns since began; 0: never
	logged atomic.Int64 // when that was last logged, likewise
	stop   chan struct{}
	done   chan struct{}

	evicting sync.Mutex // held by who makes room: two at once would close more than they have to

	mu        sync.Mutex // guards the rest
	listeners []*listener
	conns     map[*Conn]struct{}
	peers     map[netip.Prefix]*peer
	room      sync.Cond // of mu: something was given back
	turn      *Conn     // the one that reads on while the budget is full
	greetBy   time.Time // when those end that have not greeted; zero until the process ends

	waiting atomic.Int64 // connections that wait for their turn, and the one whose turn it is
}

// peer is one address.
type peer struct {
	conns int // guarded by Limit.mu
	held  atomic.Int64
}

// New makes a limit of that many bytes.
func New(bytes int64, log *slog.Logger) *Limit {
	l := &Limit{
		most: bytes, log: log, began: time.Now().Add(-time.Nanosecond),
		stop: make(chan struct{}), done: make(chan struct{}),
		conns: make(map[*Conn]struct{}), peers: make(map[netip.Prefix]*peer),
	}
	l.room.L = &l.mu
	go l.sweep()
	return l
}

// Close ends the watch for requests that are not complete in time. Connections stay as they are.
func (l *Limit) Close() {
	close(l.stop)
	<-l.done
}

// now is the time since the limit was made, which is above 0.
func (l *Limit) now() int64 { return int64(time.Since(l.began)) }

// Stats is what peers hold now.
func (l *Limit) Stats() Stats {
	s := Stats{Open: map[string]int64{}, Closed: map[string]int64{}, Bytes: l.held.Load(), Most: l.most}
	for reason := range reasons {
		s.Closed[reason.String()] = l.closed[reason].Load()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.listeners {
		s.Open[of.kind.Name] += int64(of.open)
	}
	return s
}

// Full reports whether a connection was closed within the last minute to make room.
func (l *Limit) Full() bool {
	at := l.full.Load()
	return at > 0 && l.now()-at < int64(fullFor)
}

// Hurry ends the connections that do not greet within a time, also those still to come. gRPC asks no client to go
// elsewhere before each connection has greeted or ended.
func (l *Limit) Hurry(within time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.greetBy = time.Now().Add(within)
	for c := range l.conns {
		if c.silent {
			_ = c.socket.SetDeadline(l.greetBy) // it fails on one that is closed
		}
	}
}

// sweep closes connections with requests that are not complete in time, until the limit is closed.
func (l *Limit) sweep() {
	defer close(l.done)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		for _, c := range l.overdue(l.now() - int64(unfinishedMost)) {
			l.shut(c, Unfinished)
		}
	}
}

// overdue are the connections with a request that began before then and is not complete.
func (l *Limit) overdue(then int64) []*Conn {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	return slices.DeleteFunc(all, func(c *Conn) bool { return c.oldest() >= then })
}

// relieve makes room where the budget is exceeded by more than a quarter.
func (l *Limit) relieve() {
	if l.held.Load() > l.most+l.most/4 {
		l.makeRoom()
	}
}

// makeRoom closes connections until the budget holds.
func (l *Limit) makeRoom() {
	l.evicting.Lock()
	defer l.evicting.Unlock()
	for l.held.Load() > l.most {
		victim := l.victim()
		if victim == nil {
			return
		}
		l.shut(victim, Room)
	}
}

// victim is the connection that has to go. It is nil without connections.
func (l *Limit) victim() *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leastWorth(l.largest(), nil)
}

// largest is the address whose connections hold most.
func (l *Limit) largest() (most *peer) {
	for _, p := range l.peers {
		if most == nil || p.held.Load() > most.held.Load() {
			most = p
		}
	}
	return most
}

// leastWorth is the connection of a peer that goes first, of one listener or, if that is nil, of all.
func (l *Limit) leastWorth(of *peer, at *listener) (least *Conn) {
	for c := range l.conns {
		if c.peer != of || at != nil && c.at != at {
			continue
		}
		if least == nil || c.before(least, l.most/largeHold) {
			least = c
		}
	}
	return least
}

// shut closes a connection and counts it.
func (l *Limit) shut(c *Conn, why Reason) {
	if c.Close() != nil {
		return // it was closed before
	}
	l.closed[why].Add(1)
	now := l.now()
	if why == Room {
		l.full.Store(now)
	}
	last := l.logged.Load()
	if (last == 0 || now-last >= int64(closedLogged)) && l.logged.CompareAndSwap(last, now) {
		l.log.Warn("a connection was closed", "reason", why.String(), "port", c.at.kind.Name, "peer", c.from(),
			"held", l.held.Load(), "most", l.most, "closed", l.closed[why].Load())
	}
}

// address is what counts as one peer: an address of IPv4, or a network of IPv6 as one client has it. All clients of a
// Unix socket are one peer.
func address(of net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(of.String())
	if err != nil {
		return netip.Prefix{}
	}
	addr, bits := at.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	network, _ := addr.Prefix(bits) // both fit
	return network
}
