package profiles

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	cacheShards   = 64
	positiveLife  = 5 * time.Minute
	negativeLife  = 30 * time.Second
	failedLife    = time.Second // how long an identity is not asked for again after a call that failed
	cacheSamples  = 8           // entries looked at for one to drop
	entryBytes    = 360         // of an entry without its texts, in both maps
	recordBytes   = 1024        // of a record and what decisions make of it, without its texts
	negativeBytes = entryBytes
)

// entry is what is known about one identity. It is never changed.
type entry struct {
	key     string // in Redis
	record  *Record
	value   any // what decisions use; nil: without a record
	until   time.Time
	age     uint64 // how often all was out of date when it was made
	bytes   int64
	changed bool // after news that the record is another one by now
}

// cache keeps entries for a while, in a bounded number of bytes.
type cache struct {
	seed     maphash.Seed
	maxBytes int64 // of one shard
	shards   [cacheShards]cacheShard

	changes atomic.Uint64 // identities that were forgotten: an answer from before one is not kept
	age     atomic.Uint64 // entries of an earlier age are out of date

	mu    sync.Mutex // guards names
	names map[string]Identity

	hits, misses, drops atomic.Int64
	entries, bytes      atomic.Int64
}

type cacheShard struct {
	mu    sync.RWMutex // guards all below
	known map[Identity]*entry
	bytes int64
}

func newCache(maxBytes int64) *cache {
	c := &cache{seed: maphash.MakeSeed(), maxBytes: max(maxBytes/cacheShards, 4*(entryBytes+recordBytes)),
		names: map[string]Identity{}}
	for i := range c.shards {
		c.shards[i].known = map[Identity]*entry{}
	}
	return c
}

func (c *cache) shard(id *Identity) *cacheShard {
	var h maphash.Hash
	h.SetSeed(c.seed)
	h.WriteString(id.Domain)
	h.WriteByte(byte(id.Kind))
	h.WriteString(id.Name)
	if id.Kind == Network {
		at := id.Network.Addr().As16()
		h.Write(at[:])
	}
	return &c.shards[h.Sum64()%cacheShards]
}

// find returns what is known about an identity, or nil, and whether it is up to date.
func (c *cache) find(id *Identity, now time.Time) (e *entry, fresh bool) {
	s := c.shard(id)
	s.mu.RLock()
	e = s.known[*id]
	s.mu.RUnlock()
	fresh = e != nil && e.age == c.age.Load() && now.Before(e.until)
	if fresh {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return e, fresh
}

// changed reports whether there were news about the record of an identity since it was looked up.
func (c *cache) changed(id *Identity) bool {
	s := c.shard(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.known[*id]
	return e != nil && e.changed
}

// jittered is a life up to a tenth shorter, so that what was learned together is not asked for together.
func jittered(life time.Duration) time.Duration {
	return life - rand.N(life/10)
}

// keep takes in what is known now. changes is the number of changes before it was asked for: after another one it may
// be out of date, and is not kept.
func (c *cache) keep(id Identity, e *entry, changes uint64) {
	id.Domain, id.Name = strings.Clone(id.Domain), strings.Clone(id.Name)
	s := c.shard(&id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.changes.Load() != changes {
		return
	}
	c.dropLocked(s, id)
	for len(s.known) > 0 && s.bytes+e.bytes > c.maxBytes {
		c.makeRoomLocked(s)
	}
	s.known[id] = e
	s.bytes += e.bytes
	c.entries.Add(1)
	c.bytes.Add(e.bytes)
	c.mu.Lock()
	c.names[e.key] = id
	c.mu.Unlock()
	if c.changes.Load() != changes { // forget may have looked for it before it was there
		c.dropLocked(s, id)
	}
}

// makeRoomLocked drops one entry: of a few, the one that ends first, and of those that hold a record only where all do.
func (c *cache) makeRoomLocked(s *cacheShard) {
	var victim Identity
	var first time.Time
	looked, holds := 0, false
	for id, e := range s.known {
		if known := e.value != nil; looked == 0 || holds && !known || holds == known && e.until.Before(first) {
			victim, first, holds = id, e.until, known
		}
		if looked++; looked >= cacheSamples {
			break
		}
	}
	c.drops.Add(1)
	c.dropLocked(s, victim)
}

func (c *cache) dropLocked(s *cacheShard, id Identity) {
	e := s.known[id]
	if e == nil {
		return
	}
	delete(s.known, id)
	s.bytes -= e.bytes
	c.entries.Add(-1)
	c.bytes.Add(-e.bytes)
	c.mu.Lock()
	delete(c.names, e.key)
	c.mu.Unlock()
}

// forget makes what is known about the identity whose record has that key out of date: it holds only while nothing
// newer can be had.
func (c *cache) forget(key string) {
	c.changes.Add(1)
	c.mu.Lock()
	id, known := c.names[key]
	c.mu.Unlock()
	if !known {
		return
	}
	s := c.shard(&id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.known[id]; e != nil {
		old := *e
		old.until, old.changed = time.Time{}, true
		s.known[id] = &old
	}
}

// outdate makes all that is known out of date: it holds only while nothing newer can be had.
func (c *cache) outdate() {
	c.changes.Add(1)
	c.age.Add(1)
}
