package profiles

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

const (
	positiveLife = 5 * time.Minute
	negativeLife = 30 * time.Second
	failedLife   = time.Second // how long an identity is not asked for again after a call that failed
	entryBytes   = 420         // of an entry without its texts, with its place in the cache
	profileBytes = 1024        // of a profile and what decisions make of it, without its texts
	absentPart   = 4           // one part in so many of the cache is for identities without a profile
)

// entry is what is known about one identity. It is never changed.
type entry struct {
	key     string // in Redis
	profile *Profile
	value   any // what decisions use; nil: without a profile
	until   time.Time
	age     uint64 // how often all was out of date when it was made
	bytes   int64
	changed bool // after news that the profile is another one by now
}

// cache keeps entries for a while, in a bounded number of bytes. Those without a profile have a part of their own, so
// that no number of made-up identities drops a profile.
type cache struct {
	present, absent *part

	changes atomic.Uint64 // identities that were forgotten: an answer from before one is not kept
	age     atomic.Uint64 // entries of an earlier age are out of date

	drops atomic.Int64
}

// part is entries by identity, and the identities by their keys in Redis, by which news name them.
type part struct {
	*otter.Cache[Identity, *entry]

	mu    sync.Mutex // guards names; it is taken last
	names map[string]Identity
}

func newCache(maxBytes int64) *cache {
	c := new(cache)
	c.present, c.absent = c.newPart(maxBytes-maxBytes/absentPart), c.newPart(maxBytes/absentPart)
	return c
}

func (c *cache) newPart(bytes int64) *part {
	p := &part{names: map[string]Identity{}}
	p.Cache = otter.Must(&otter.Options[Identity, *entry]{
		MaximumWeight: uint64(bytes),
		Weigher:       func(_ Identity, e *entry) uint32 { return uint32(e.bytes) },
		Executor:      func(do func()) { do() }, // it starts no goroutine
		OnAtomicDeletion: func(d otter.DeletionEvent[Identity, *entry]) {
			if d.Cause == otter.CauseReplacement {
				return
			}
			if d.WasEvicted() {
				c.drops.Add(1)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.names, d.Value.key)
		},
	})
	return p
}

// find returns what is known about an identity, or nil, and whether it is up to date.
func (c *cache) find(id *Identity, now time.Time) (e *entry, fresh bool) {
	e = c.peek(id)
	return e, e != nil && e.age == c.age.Load() && now.Before(e.until)
}

func (c *cache) peek(id *Identity) *entry {
	e, ok := c.present.GetIfPresent(*id)
	if !ok {
		e, _ = c.absent.GetIfPresent(*id)
	}
	return e
}

// changed reports whether there were news about the profile of an identity since it was looked up.
func (c *cache) changed(id *Identity) bool {
	e := c.peek(id)
	return e != nil && e.changed
}

// jittered is a life up to a tenth shorter, so that what was learned together is not asked for together.
func jittered(life time.Duration) time.Duration {
	return life - rand.N(life/10)
}

// keep takes in what is known now. changes is the number of changes before it was asked for: after another one it may
// be out of date, and is not kept.
func (c *cache) keep(id Identity, e *entry, changes uint64) {
	if c.changes.Load() != changes {
		return
	}
	id.Domain, id.Name = strings.Clone(id.Domain), strings.Clone(id.Name)
	to, from := c.present, c.absent
	if e.value == nil {
		to, from = from, to
	}
	to.Compute(id, func(*entry, bool) (*entry, otter.ComputeOp) {
		to.mu.Lock()
		defer to.mu.Unlock()
		to.names[e.key] = id
		return e, otter.WriteOp
	})
	from.Invalidate(id)
	if c.changes.Load() != changes { // forget may have looked for it before it was there
		to.Invalidate(id)
	}
}

// forget makes what is known about the identity whose profile has that key out of date: it holds only while nothing
// newer can be had.
func (c *cache) forget(key string) {
	c.changes.Add(1)
	c.present.forget(key)
	c.absent.forget(key)
}

func (p *part) forget(key string) {
	p.mu.Lock()
	id, known := p.names[key]
	p.mu.Unlock()
	if !known {
		return
	}
	p.ComputeIfPresent(id, func(e *entry) (*entry, otter.ComputeOp) {
		old := *e
		old.until, old.changed = time.Time{}, true
		return &old, otter.WriteOp
	})
}

// outdate makes all that is known out of date: it holds only while nothing newer can be had.
func (c *cache) outdate() {
	c.changes.Add(1)
	c.age.Add(1)
}

func (c *cache) entries() int64 { return int64(c.present.EstimatedSize() + c.absent.EstimatedSize()) }

func (c *cache) bytes() int64 { return int64(c.present.WeightedSize() + c.absent.WeightedSize()) }
