package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

const (
	mapEvery   = time.Second            // how old the map of slots may be
	mapPause   = 200 * time.Millisecond // the least time between two that were asked for
	redirects  = 3                      // followed per call
	splitPause = 500 * time.Microsecond // between two tries of keys that are being moved
	formerFor  = 5 * time.Second        // how long a server without slots is kept: keys may be on their way to it, or replies from it
)

// cluster is a Redis Cluster. Its nodes are the masters by their addresses, each with a breaker, so that a replica that was promoted
// starts with a closed one.
type cluster struct {
	fleet *Fleet
	dial  func(ctx context.Context, address string) (net.Conn, error)
	lobby *Node // takes calls while it is not known which server holds a slot, or none does

	table  atomic.Pointer[table] // nil: not known yet
	fault  atomic.Pointer[error] // why it could not be fetched the last time; nil: it could, or was not yet
	loaded chan struct{}         // closed when it is known
	tried  chan struct{}         // closed when it was asked for once
	wake   chan struct{}         // the map is wanted
	done   chan struct{}

	mu      sync.Mutex               // guards all below
	members map[string]*Node         // masters, and servers that calls were redirected to
	asked   map[string]*redis.Client // for the map, by address
	closed  bool
}

// table is the map of slots: the master of each, nil where there is none.
type table [slots]*Node

func newCluster(f *Fleet) *cluster {
	c := &cluster{
		fleet: f, dial: f.servers.dialer(), loaded: make(chan struct{}), tried: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
		members: map[string]*Node{}, asked: map[string]*redis.Client{},
	}
	c.lobby = f.node(f.prefix + "cluster")
	c.lobby.routes, c.lobby.lobby = c, true
	go c.follow(c.lobby.ctx)
	return c
}

// Place is the master of the key's slot, as far as known. A call with keys of two slots is refused by the server, also where one
// server holds both.
func (c *cluster) Place(key string) (*Node, int) {
	slot := SlotOf(key)
	if t := c.table.Load(); t != nil && t[slot] != nil {
		return t[slot], slot
	}
	return c.lobby, slot
}

// Nodes are the masters.
func (c *cluster) Nodes() []*Node {
	t := c.table.Load()
	if t == nil {
		return []*Node{c.lobby}
	}
	var all []*Node
	for i, n := range t {
		if n != nil && (i == 0 || n != t[i-1]) && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return []*Node{c.lobby}
	}
	return all
}

// known waits until the map is known.
func (c *cluster) known(ctx context.Context) {
	select {
	case <-c.loaded:
	case <-ctx.Done():
	}
}

// errVacant is what a server of the cluster would reply.
const errVacant = ReplyError("CLUSTERDOWN Hash slot not served")

// find is the master of a key. It waits until the map is known.
func (c *cluster) find(key string, deadline time.Duration) (*Node, error) {
	n, _ := c.Place(key)
	if !n.lobby {
		return n, nil
	}
	wait := time.NewTimer(deadline - processTime())
	defer wait.Stop()
	select {
	case <-c.tried:
	case <-wait.C:
		return nil, errNoLink
	case <-c.lobby.ctx.Done():
		return nil, errClosed
	}
	if fault := c.fault.Load(); fault != nil && c.table.Load() == nil {
		return nil, &unsentError{*fault}
	}
	n, _ = c.Place(key)
	if n.lobby {
		return nil, errVacant
	}
	return n, nil
}

// exchange sends a call to a node, and follows what the servers say about where its key is.
func (c *cluster) exchange(n *Node, call *Call, allow time.Duration) error {
	for hops := 0; ; {
		if n.lobby {
			var err error
			began := processTime()
			n, err = c.find(call.Key, began+allow-call.spent)
			if err != nil {
				return err
			}
			allow -= processTime() - began
		}
		err := n.Send(call, allow-call.spent)
		next, asking := c.redirected(err, n.address)
		switch {
		case next != "" && hops < redirects:
			hops++
			n, call.asking, call.moved = c.member(next), asking, true
		case IsReply(err, "TRYAGAIN") && call.spent+splitPause < allow:
			time.Sleep(splitPause)
			allow -= splitPause
		default:
			return err
		}
		if n == nil {
			return errClosed
		}
	}
}

// redirected is the address that a reply of the server at origin names, and whether it is for this call only.
func (c *cluster) redirected(err error, origin string) (address string, asking bool) {
	var reply ReplyError
	if !errors.As(err, &reply) {
		return "", false
	}
	words := strings.Fields(string(reply))
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false
	}
	if words[0] == "MOVED" {
		c.reload()
	}
	return reachable(bracketed(words[2]), origin), words[0] == "ASK"
}

// bracketed is an address in a reply as it can be dialled: there a host with colons has no brackets.
func bracketed(address string) string {
	at := strings.LastIndexByte(address, ':')
	if at < 0 || strings.HasPrefix(address, "[") {
		return address
	}
	return net.JoinHostPort(address[:at], address[at+1:])
}

// heard asks for the map after a failure: a server that fails may have a successor.
func (c *cluster) heard(err error) {
	switch Reason(err) {
	case ReasonTimeout, ReasonDial, ReasonClosed, ReasonReadonly, ReasonBreaker, ReasonCluster:
		c.reload()
	}
}

// reload asks for the map.
func (c *cluster) reload() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// member is the node of an address, nil when the cluster is closed.
func (c *cluster) member(address string) *Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if n := c.members[address]; n != nil {
		n.used.Store(int64(processTime()))
		return n
	}
	n := c.fleet.node(c.fleet.prefix + address)
	n.routes, n.address = c, address
	n.start(func(ctx context.Context) (net.Conn, error) { return c.dial(ctx, address) })
	n.used.Store(int64(processTime()))
	c.members[address] = n
	return n
}

// follow keeps the map up to date.
func (c *cluster) follow(ctx context.Context) {
	defer close(c.done)
	var once sync.Once
	for ctx.Err() == nil {
		began := time.Now()
		loaded := false
		c.fleet.Guard(func() { loaded = c.load(ctx) })
		if !loaded {
			c.reload() // soon again
		}
		once.Do(func() { close(c.tried) })
		pause(ctx, mapPause-time.Since(began))
		wait := time.NewTimer(mapEvery - time.Since(began))
		select {
		case <-c.wake:
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
	}
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// load fetches the map from the first server that has it: those that answer calls go first. It reports whether one had it.
func (c *cluster) load(ctx context.Context) bool {
	fault := errors.New("no server of the cluster knows its slots")
	for _, address := range c.candidates() {
		within, cancel := context.WithTimeout(ctx, c.fleet.servers.AnswerTimeout)
		reply, err := c.client(address).Do(within, "CLUSTER", "SLOTS").Slice() // CLUSTER SHARDS is missing before Redis 7
		cancel()
		var ranges []slotRange
		if err == nil {
			ranges, err = slotRanges(reply)
		}
		if err == nil && len(ranges) > 0 {
			c.learn(ranges, address)
			c.fault.Store(nil)
			return true
		}
		if err != nil {
			fault = err
			c.drop(address)
		}
	}
	c.fault.Store(&fault)
	return false
}

// candidates are the addresses to ask for the map. A server that fails, or has no slots any more, may be cut off from the others and know an old map only.
func (c *cluster) candidates() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var well, others []string
	known := map[*Node]bool{}
	if t := c.table.Load(); t != nil {
		known = t.members()
	}
	for address, n := range c.members {
		if n.healthy() && n.Breaker().State() == breaker.Closed && (len(known) == 0 || known[n]) {
			well = append(well, address)
		} else {
			others = append(others, address)
		}
	}
	for _, list := range [][]string{well, others} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	return slices.Concat(well, c.fleet.servers.Addresses, others)
}

// client asks one server for the map.
func (c *cluster) client(address string) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.asked[address]
	if client == nil {
		client = redis.NewClient(c.fleet.servers.options(address))
		c.asked[address] = client
	}
	return client
}

// drop forgets the client of a server that did not answer: one that fails often would wait before it dials again.
func (c *cluster) drop(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.asked[address]; client != nil {
		_ = client.Close() // it was of no use
		delete(c.asked, address)
	}
}

// learn takes in the map that a server told.
func (c *cluster) learn(ranges []slotRange, origin string) {
	fresh := new(table)
	masters := map[string]bool{}
	for _, r := range ranges {
		address := reachable(r.address, origin)
		masters[address] = true
		n := c.member(address)
		for slot := max(r.first, 0); slot <= min(r.last, slots-1); slot++ {
			fresh[slot] = n
		}
	}
	fresh.settle(c.table.Load())
	first := c.table.Swap(fresh) == nil
	if first {
		close(c.loaded)
		c.lobby.guard.Load().Nudge()
	}
	c.forget(masters)
}

// reachable is the address of a server as another one named it: without a host, or on a machine of its own, it is where that one is.
func reachable(address, origin string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	at, _, err := net.SplitHostPort(origin)
	if err != nil {
		return address
	}
	if host == "" || host == "?" || isLoopback(host) && !isLoopback(at) {
		return net.JoinHostPort(at, port)
	}
	return address
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// forget lets go of servers that hold no slots any more.
func (c *cluster) forget(masters map[string]bool) {
	c.mu.Lock()
	var former []*Node
	for address, n := range c.members {
		if !masters[address] && processTime()-time.Duration(n.used.Load()) > formerFor {
			former = append(former, n)
			delete(c.members, address)
		}
	}
	for address, client := range c.asked {
		if !masters[address] && !slices.Contains(c.fleet.servers.Addresses, address) {
			_ = client.Close() // what it was asked is over
			delete(c.asked, address)
		}
	}
	c.mu.Unlock()
	for _, n := range former {
		n.close()
	}
}

// Close ends the connections.
func (c *cluster) Close() {
	c.lobby.cancel()
	<-c.done
	c.mu.Lock()
	c.closed = true
	members, asked := c.members, c.asked
	c.members, c.asked = nil, nil
	c.mu.Unlock()
	for _, n := range members {
		n.close()
	}
	for _, client := range asked {
		_ = client.Close() // what it was asked is over
	}
}
