package store

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	reloadEvery = time.Second            // how old the map of slots may be; the library's minute is how long a failover would last
	reloadPause = 200 * time.Millisecond // the least time between two that somebody asked for
	redirects   = 3                      // followed per call
)

// cluster is a Redis Cluster. Its nodes are the masters by their addresses, each with a breaker, so that a replica that was promoted
// starts with a closed one.
type cluster struct {
	client *redis.ClusterClient
	guards guards
	prefix string
	lobby  node // takes calls while it is not known who holds a slot, or nobody does
	config Servers

	// mu guards members, dialers, and which master is admitted. It is never held around a call of the library, which calls newClient and
	// joined with a lock of its own.
	mu      sync.Mutex
	members []*member
	dialers map[string]*dialer // by address, of members that have not joined yet

	masters  sync.Map               // address to *master
	served   atomic.Pointer[served] // nil: not known yet
	reloaded atomic.Int64           // when the map was last asked for, in ns
}

// served has a bit for each slot that somebody serves. The library names any server for one that nobody does.
type served [slots / 64]uint64

func (s *served) has(slot int) bool { return s[slot/64]&(1<<(slot%64)) != 0 }

// master is a node with a key that it was asked for. It is a master while that key is its own. One that was deposed is not asked any
// more, so nobody wants to hear that it is away.
type master struct {
	node
	key atomic.Pointer[string]
	at  atomic.Int64 // unix seconds when the key was noted
}

// note keeps one key a second.
func (m *master) note(now time.Time, key string) {
	if at := now.Unix(); m.at.Load() != at {
		m.at.Store(at)
		m.key.Store(&key)
	}
}

// member is what runs beside the library's client of one server.
type member struct {
	address string
	warmer  *warmer
	dialer  *dialer
}

func newCluster(s Servers, prefix string, g guards) *cluster {
	c := &cluster{guards: g, prefix: prefix, config: s, dialers: map[string]*dialer{}}
	c.lobby = node{name: prefix + "cluster", guard: g.guard(prefix+"cluster", nil), routing: 1, failed: c.reload}
	options := s.options("")
	c.client = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: slices.Clone(s.Addresses), NewClient: c.newClient, MaxRedirects: redirects, ClusterStateReloadInterval: reloadEvery,
		// Routing policies would ask the servers about each command.
		DisableRoutingPolicies: true,
		Username:               options.Username, Password: options.Password, CredentialsProvider: options.CredentialsProvider, TLSConfig: options.TLSConfig,
		MaxRetries: options.MaxRetries, ContextTimeoutEnabled: true,
		DialTimeout: options.DialTimeout, DialerRetries: options.DialerRetries,
		ReadTimeout: options.ReadTimeout, WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout,
		PoolSize: options.PoolSize, MinIdleConns: options.MinIdleConns, PipelinePoolSize: options.PipelinePoolSize,
		ConnMaxIdleTime: options.ConnMaxIdleTime, ConnMaxLifetime: options.ConnMaxLifetime, ConnMaxLifetimeJitter: options.ConnMaxLifetimeJitter,
		DisableIdentity: true, MaintNotificationsConfig: options.MaintNotificationsConfig,
	})
	c.client.OnNewNode(c.joined)
	c.lobby.sender = c.client
	c.reload()
	return c
}

// newClient makes the client of one server of the cluster.
func (c *cluster) newClient(o *redis.Options) *redis.Client {
	address := o.Addr
	d := newDialer(o, func() { c.nudge(address) })
	o.Dialer = d.connect
	c.mu.Lock()
	c.dialers[address] = d
	c.mu.Unlock()
	client := redis.NewClient(o)
	client.AddHook(slotReader{c})
	return client
}

// slotReader reads along when the library fetches the map of slots.
type slotReader struct{ cluster *cluster }

// ProcessHook notes which slots are served.
func (r slotReader) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(*redis.ClusterSlotsCmd); ok && err == nil {
			r.cluster.learn(reply.Val())
		}
		return err
	}
}

// DialHook changes nothing.
func (slotReader) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (slotReader) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *cluster) learn(ranges []redis.ClusterSlot) {
	all := new(served)
	for _, r := range ranges {
		for slot := max(r.Start, 0); slot <= min(r.End, slots-1); slot++ {
			all[slot/64] |= 1 << (slot % 64)
		}
	}
	c.served.Store(all)
}

// vacant tells whether nobody serves the slot, as far as known.
func (c *cluster) vacant(slot int) bool {
	known := c.served.Load()
	return known != nil && !known.has(slot)
}

// joined begins to greet a server once its client is complete, and forgets those whose clients the library has closed.
func (c *cluster) joined(client *redis.Client) {
	address := client.Options().Addr
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.members[:0]
	for _, old := range c.members {
		if !old.warmer.ended() {
			kept = append(kept, old)
		}
	}
	d := c.dialers[address]
	c.members = append(kept, &member{address, newWarmer(client, c.config, d, func() { c.nudge(address) }), d})
	delete(c.dialers, address)
}

// nudge tells the breaker of a server that it can be reached again.
func (c *cluster) nudge(address string) {
	c.lobby.guard.Nudge()
	if m, ok := c.masters.Load(address); ok {
		m.(*master).guard.Nudge()
	}
}

// cull lets go of connections to a server that may have died while it was away.
func (c *cluster) cull(address string) {
	for _, m := range c.joinedSoFar() {
		if m.address == address {
			m.dialer.cull()
		}
	}
}

func (c *cluster) joinedSoFar() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members)
}

// atOnce is a context without time: with it the library answers from what it knows, and asks nobody.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// place is the master of the key's slot, as far as known. A call with keys of two slots is refused by the server, also where one
// server holds both.
func (c *cluster) place(key string) (*node, int) {
	slot := slotOf(key)
	client, err := c.client.MasterForKey(atOnce, key)
	if err != nil || c.vacant(slot) {
		return &c.lobby, slot
	}
	address := client.Options().Addr
	if m, ok := c.masters.Load(address); ok && m.(*master).client == client {
		return &m.(*master).node, slot
	}
	return c.admit(address, client, key), slot
}

// admit adds a master, and forgets those that are none any more.
func (c *cluster) admit(address string, client *redis.Client, key string) *node {
	m := c.enter(address, client, key)
	c.masters.Range(func(address, old any) bool {
		if !c.reigns(old.(*master)) {
			c.masters.CompareAndDelete(address, old)
		}
		return true
	})
	return &m.node
}

// enter is the master with this client, which is added if nobody did.
func (c *cluster) enter(address string, client *redis.Client, key string) *master {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m, ok := c.masters.Load(address); ok && m.(*master).client == client {
		return m.(*master)
	}
	name := c.prefix + address
	m := &master{node: node{name: name, guard: c.guards.guard(name, func() { c.cull(address) }), client: client, sender: c.client, routing: 1, failed: c.reload}}
	m.seen = m.note
	m.key.Store(&key)
	c.masters.Store(address, m)
	return m
}

// reigns tells whether the key that a master was asked for is still its own, or nobody's.
func (c *cluster) reigns(m *master) bool {
	key := *m.key.Load()
	client, err := c.client.MasterForKey(atOnce, key)
	return err == nil && (client == m.client || c.vacant(slotOf(key)))
}

// reload fetches the map of slots in the background. A server that fails may have a successor, so every failure asks for it.
func (c *cluster) reload() {
	now := time.Now().UnixNano()
	last := c.reloaded.Load()
	if now-last < int64(reloadPause) || !c.reloaded.CompareAndSwap(last, now) {
		return
	}
	c.client.ReloadState(context.Background())
}

func (c *cluster) nodes() []*node {
	var all []*node
	c.masters.Range(func(_, m any) bool {
		if c.reigns(m.(*master)) {
			all = append(all, &m.(*master).node)
		}
		return true
	})
	if len(all) == 0 {
		return []*node{&c.lobby}
	}
	return all
}

func (c *cluster) close() error {
	err := c.client.Close()
	for _, m := range c.joinedSoFar() {
		m.dialer.stop()
		m.warmer.stop()
	}
	return err
}

// slots is how many a cluster has.
const slots = 16384

// slotOf is the slot of a key: the CRC-16 (XMODEM) of its hash tag.
func slotOf(key string) int {
	crc := uint16(0)
	tag := hashTag(key)
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return int(crc % slots)
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
