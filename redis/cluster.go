package redis

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
)

const formerFor = 5 * time.Second // how long a server without slots is kept: replies may be on their way

// cluster is a Redis Cluster: which server holds which slot.
type cluster struct {
	client  *Client
	unknown *Server               // takes requests while it is not known which server holds their slot, or none does
	table   atomic.Pointer[table] // nil: not known yet
	seeds   []*goredis.Client     // of the configuration

	mu      sync.Mutex         // guards all below
	members map[string]*Server // masters, and servers that commands were sent on to, by address
	closed  bool
}

// table is which server holds which slot.
type table struct {
	bySlot  [slotCount]*Server // nil where it is unknown
	masters []*Server
}

func newCluster(c *Client) *cluster {
	all := &cluster{client: c, members: map[string]*Server{}, unknown: c.newServer("cluster", "")}
	for _, address := range c.cfg.Addresses {
		all.seeds = append(all.seeds, goredis.NewClient(c.cfg.options(address, answerWithin, 1)))
	}
	return all
}

// server is the master of a slot as far as known, for -1 any master.
func (c *cluster) server(slot int) *Server {
	t := c.table.Load()
	if slot < 0 {
		all := c.servers()
		return all[rand.IntN(len(all))]
	}
	if t == nil || t.bySlot[slot] == nil {
		return c.unknown
	}
	return t.bySlot[slot]
}

// servers are the masters.
func (c *cluster) servers() []*Server {
	if t := c.table.Load(); t != nil {
		return t.masters
	}
	return []*Server{c.unknown}
}

// unplaced waits for the table, and fails commands whose server was not known.
func (c *cluster) unplaced(ctx context.Context, all []*command) {
	ctx, cancel := context.WithTimeout(ctx, c.client.cfg.Silence)
	defer cancel()
	err := c.client.watch.await(ctx)
	if err == nil || c.table.Load() != nil {
		err = errUnknown
	}
	for _, command := range all {
		command.SetErr(err)
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
		s = c.client.newServer(address, address)
		c.members[address] = s
	}
	s.named = time.Now()
	return s
}

// look reads the table from the first server that has it. Those that answer requests come first: one that fails may be
// cut off from the others and have an old table.
func (c *cluster) look(ctx context.Context) (err error) {
	var well []*goredis.Client
	for _, s := range c.servers() {
		if s != c.unknown && s.guard.State() != breaker.Open {
			well = append(well, s.cold)
		}
	}
	for _, one := range append(well, c.seeds...) {
		err = c.read(ctx, one)
		if err == nil {
			break
		}
	}
	return err
}

// read takes in the table that a server has.
func (c *cluster) read(ctx context.Context, from *goredis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	reply, err := from.Do(ctx, "CLUSTER", "SLOTS").Slice() // CLUSTER SHARDS is missing before Redis 7
	if err != nil {
		return err
	}
	fresh := new(table)
	for _, row := range reply {
		first, last, master, replicas := slotRow(row, from.Options().Addr)
		s := c.member(master)
		for slot := max(first, 0); s != nil && slot <= min(last, slotCount-1); slot++ {
			fresh.bySlot[slot] = s
		}
		if s != nil && !slices.Contains(fresh.masters, s) {
			fresh.masters = append(fresh.masters, s)
			if c.client.cfg.Replicas {
				s.copiedTo(replicas)
			}
		}
	}
	if len(fresh.masters) == 0 {
		return errUnknown
	}
	c.table.Store(fresh)
	c.forget()
	return nil
}

// forget lets go of servers that were not named for a while.
func (c *cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.members, func(_ string, s *Server) bool {
		former := time.Since(s.named) > formerFor
		if former {
			c.client.watch.running.Go(s.close)
		}
		return former
	})
}

func (c *cluster) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, s := range c.members {
		s.close()
	}
	for _, s := range c.seeds {
		_ = s.Close()
	}
	c.unknown.close()
}
