package redis

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

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

const (
	mapEvery  = time.Second            // how old the map of slots may be
	mapPause  = 200 * time.Millisecond // the least time between two that are asked for
	formerFor = 5 * time.Second        // how long a server without slots is kept: replies may be on their way
)

// cluster is a Redis Cluster: which server holds which slot. It is asked for once a second, and after what may be a
// change.
type cluster struct {
	client  *Client
	unknown *Server // takes requests while it is not known which server holds their slot, or none does

	table   atomic.Pointer[table] // nil: not known yet
	fault   atomic.Pointer[error] // why it could not be read the last time; nil: it could
	tried   chan struct{}         // closed when it was asked for once
	wake    chan struct{}         // it is wanted
	ctx     context.Context       // ends with the client
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex         // guards all below
	members map[string]*Server // masters, and servers that commands were sent on to, by address
	closed  bool
}

// table is the master of each slot, nil where there is none.
type table [slotCount]*Server

func newCluster(client *Client) *cluster {
	c := &cluster{
		client: client, members: map[string]*Server{},
		tried: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.unknown = client.newServer("cluster", nil)
	c.running.Go(c.follow)
	return c
}

// server is the master of a slot as far as known, for -1 any master.
func (c *cluster) server(slot int) *Server {
	t := c.table.Load()
	switch {
	case t == nil:
		return c.unknown
	case slot < 0:
		all := c.servers()
		return all[rand.IntN(len(all))]
	case t[slot] == nil:
		return c.unknown
	}
	return t[slot]
}

// servers are the masters.
func (c *cluster) servers() []*Server {
	var all []*Server
	if t := c.table.Load(); t != nil {
		for i, s := range t {
			if s != nil && (i == 0 || s != t[i-1]) && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	if len(all) == 0 {
		return []*Server{c.unknown}
	}
	return all
}

// await waits until the table was asked for.
func (c *cluster) await(ctx context.Context) {
	select {
	case <-c.tried:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// unplaced waits until the table was asked for, and fails commands whose server was not known.
func (c *cluster) unplaced(ctx context.Context, all []*command) {
	ctx, cancel := context.WithTimeout(ctx, c.client.cfg.Silence)
	defer cancel()
	c.await(ctx)
	err := errUnknown
	if fault := c.fault.Load(); fault != nil && c.table.Load() == nil {
		err = *fault
	}
	for _, command := range all {
		command.fault = &unsentError{err}
	}
}

// reload asks for the table.
func (c *cluster) reload() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// member is the server of an address; without an address, or when the cluster is closed, nil.
func (c *cluster) member(address string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || address == "" {
		return nil
	}
	s := c.members[address]
	if s == nil {
		s = c.client.serverAt(address)
		s.address = address
		c.members[address] = s
	}
	s.named = time.Now()
	return s
}

// follow keeps the table up to date.
func (c *cluster) follow() {
	var once sync.Once
	for c.ctx.Err() == nil {
		loaded := false
		c.client.Guard(func() { loaded = c.load() })
		once.Do(func() { close(c.tried) })
		if !loaded {
			c.reload() // soon again
		}
		pause(c.ctx, mapPause)
		select {
		case <-c.wake:
		case <-time.After(mapEvery - mapPause):
		case <-c.ctx.Done():
		}
	}
}

// load reads the table from the first server that has it, and reports whether one had. Those that answer requests
// come first: one that fails may be cut off from the others and have an old table.
func (c *cluster) load() bool {
	fault := errors.New("no server of the cluster knows its slots")
	for _, address := range c.candidates() {
		ctx, cancel := context.WithTimeout(c.ctx, answerWithin)
		ranges, err := c.slotsAt(ctx, address)
		cancel()
		if err == nil && len(ranges) > 0 {
			c.learn(ranges, address)
			c.fault.Store(nil)
			return true
		}
		if err != nil {
			fault = err
		}
	}
	c.fault.Store(&fault)
	return false
}

// slotsAt asks a server for its table. A configured address that is no master gets a connection for this alone.
func (c *cluster) slotsAt(ctx context.Context, address string) ([]slotRange, error) {
	c.mu.Lock()
	s := c.members[address]
	c.mu.Unlock()
	var client *goredis.Client
	if s != nil {
		client = s.cold
	} else {
		client = goredis.NewClient(c.client.cfg.lone(address))
		defer client.Close()
	}
	reply, err := client.Do(ctx, "CLUSTER", "SLOTS").Slice() // CLUSTER SHARDS is missing before Redis 7
	if err != nil {
		return nil, err
	}
	return slotRanges(reply)
}

// candidates are the addresses of servers to ask for the table.
func (c *cluster) candidates() []string {
	known := c.servers()
	c.mu.Lock()
	defer c.mu.Unlock()
	var well, others []string
	for address, s := range c.members {
		if s.guard.State() == breaker.Closed && slices.Contains(known, s) {
			well = append(well, address)
		} else {
			others = append(others, address)
		}
	}
	return slices.Concat(well, c.client.cfg.Addresses, others)
}

// learn takes in the table that a server has.
func (c *cluster) learn(ranges []slotRange, origin string) {
	fresh := new(table)
	for _, r := range ranges {
		s := c.member(reachable(r.address, origin))
		for slot := max(r.first, 0); slot <= min(r.last, slotCount-1); slot++ {
			fresh[slot] = s
		}
	}
	c.table.Store(fresh)
	c.forget()
}

// forget lets go of servers that were not named for a while.
func (c *cluster) forget() {
	c.mu.Lock()
	var former []*Server
	for address, s := range c.members {
		if time.Since(s.named) > formerFor {
			former = append(former, s)
			delete(c.members, address)
		}
	}
	c.mu.Unlock()
	for _, s := range former {
		s.close()
	}
}

// close ends the connections.
func (c *cluster) close() {
	c.cancel()
	c.running.Wait()
	c.mu.Lock()
	c.closed = true
	members := c.members
	c.mu.Unlock()
	for _, s := range members {
		s.close()
	}
	c.unknown.close()
}

// bracketed is an address in a reply as it can be dialled: there a host with colons has no brackets.
func bracketed(address string) string {
	at := strings.LastIndexByte(address, ':')
	if at < 0 || strings.HasPrefix(address, "[") {
		return address
	}
	return net.JoinHostPort(address[:at], address[at+1:])
}

// reachable is the address of a server as another one named it: without a host, or on a machine of its own, it is
// where that one is. It is empty for what cannot be an address.
func reachable(address, origin string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return ""
	}
	at, _, err := net.SplitHostPort(origin)
	if err == nil && (host == "" || host == "?" || isLoopback(host) && !isLoopback(at)) {
		return net.JoinHostPort(at, port)
	}
	return address
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
