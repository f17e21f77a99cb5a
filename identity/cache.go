package identity

import (
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"
)

// How long what a token yielded is remembered. A key that leaves its set ends it at once, see grant.fresh.
const (
	rememberVerified = time.Minute
	rememberRejected = 30 * time.Second
)

// cacheKey is a token under a configuration. Tokens are secrets, so only their digest is kept.
type cacheKey struct {
	config uint64
	token  [sha256.Size]byte
}

// grant is what a token yielded: an identity, or nothing when its user is empty.
type grant struct {
	user, tenant, tier string
	set                *keySet // whose keys decided; nil: no key was needed to reject it
	generation         uint64  // of those keys
	expires            int64   // unix nanoseconds; 0: is not remembered
}

// fresh reports whether the grant still holds: in time, and decided by the keys that are there now.
func (g *grant) fresh(now int64) bool {
	return now < g.expires && (g.set == nil || g.set.current.Load().generation == g.generation)
}

// cacheShards is how many parts a cache has, so that requests rarely wait for each other.
const cacheShards = 16

// maxGrant is how many bytes of names a grant may hold to be remembered. A token with longer ones is verified each
// time. It bounds what the cache takes.
const maxGrant = 512

// Bytes that a token takes at most: its slot and its place in the index, each with the room that they grow by.
const (
	rejectedBytes = 320
	verifiedBytes = rejectedBytes + maxGrant + maxGrant/4
)

// cache remembers a bounded number of grants. When it is full, one of the configuration that holds most makes room, so
// that a flood of one domain's tokens costs that domain's tokens. Of these it is one that was not asked for lately: one
// hand goes round and spares each that was asked for since it last came by.
type cache struct {
	shards  [cacheShards]cacheShard
	evicted atomic.Uint64 // that were still fresh
}

type cacheShard struct {
	mu    sync.Mutex // guards all below
	index map[cacheKey]int
	slots []cacheSlot
	holds map[uint64]int // slots of each configuration
	size  int
	hand  int
}

type cacheSlot struct {
	key   cacheKey
	grant grant
	asked bool
}

// newCache makes a cache of at most size grants, rounded up to a multiple of the shards.
func newCache(size int) *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].size = (size + cacheShards - 1) / cacheShards
		c.shards[i].index, c.shards[i].holds = map[cacheKey]int{}, map[uint64]int{}
	}
	return c
}

func (c *cache) shard(key *cacheKey) *cacheShard { return &c.shards[key.token[0]%cacheShards] }

// get is the fresh grant of a token, if there is one.
func (c *cache) get(key *cacheKey, now int64) (grant, bool) {
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[*key]
	if !ok || !s.slots[i].grant.fresh(now) {
		return grant{}, false
	}
	s.slots[i].asked = true
	return s.slots[i].grant, true
}

// put remembers the grant of a token.
func (c *cache) put(key *cacheKey, g grant, now int64) {
	if len(g.user)+len(g.tenant)+len(g.tier) > maxGrant {
		c.evicted.Add(1)
		return
	}
	s := c.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.index[*key]
	if !ok {
		i = s.roomLocked()
		if s.slots[i].grant.fresh(now) {
			c.evicted.Add(1)
		}
		delete(s.index, s.slots[i].key)
		s.index[*key] = i
		s.holds[key.config]++
	}
	s.slots[i] = cacheSlot{key: *key, grant: g}
}

// roomLocked is a slot that may be written over.
func (s *cacheShard) roomLocked() int {
	if len(s.slots) < s.size {
		s.slots = append(s.slots, cacheSlot{})
		return len(s.slots) - 1
	}
	most := s.mostLocked()
	for {
		i := s.hand
		s.hand = (s.hand + 1) % len(s.slots)
		switch slot := &s.slots[i]; {
		case slot.key.config != most:
		case slot.asked:
			slot.asked = false
		default:
			s.holds[most]--
			if s.holds[most] == 0 {
				delete(s.holds, most)
			}
			return i
		}
	}
}

// mostLocked is the configuration that holds most slots.
func (s *cacheShard) mostLocked() uint64 {
	most, slots := uint64(0), 0
	for config, n := range s.holds {
		if n > slots {
			most, slots = config, n
		}
	}
	return most
}

// len is how many grants are remembered, fresh or not.
func (c *cache) len() int {
	n := 0
	for i := range c.shards {
		c.shards[i].mu.Lock()
		n += len(c.shards[i].index)
		c.shards[i].mu.Unlock()
	}
	return n
}
