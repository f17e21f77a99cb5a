package store

import (
	"sync"
	"sync/atomic"
)

// Bounds of the pots.
const (
	maxPots  = 256          // more classes than that share them
	maxNames = 16 * maxPots // classes whose pot is known; beyond it all are assigned anew
)

// pot holds the counters of one class. When the store is full, the pot that takes most forgets: so a flood of one rule's
// counters costs that rule's counters, and no others. queues[i] is guarded by the lock of shard i.
type pot struct {
	keys     atomic.Int64 // entries
	bytes    atomic.Int64 // of all entries, see entry.cost
	soonest  atomic.Int64 // when the first entry of all expires, or earlier
	queues   [shardCount]queue
	earliest [shardCount]atomic.Int64 // when the first entry of each queue expires, for a look without the lock
	spares   [shardCount]atomic.Int64 // the turn of the one that is forgotten first, likewise
}

func newPot() *pot {
	p := new(pot)
	p.soonest.Store(never)
	for i := range shardCount {
		p.earliest[i].Store(never)
		p.spares[i].Store(never)
	}
	return p
}

// pots are all pots of a store. A pot is never removed, but an empty one may get another class.
type pots struct {
	mu     sync.RWMutex           // guards byName, and changes of all
	byName map[uint32]*pot        // by class
	all    atomic.Pointer[[]*pot] // each pot once
}

// of returns the pot of a class.
func (p *pots) of(class uint32) *pot {
	p.mu.RLock()
	found := p.byName[class]
	p.mu.RUnlock()
	if found != nil {
		return found
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName[class] == nil {
		if len(p.byName) >= maxNames {
			clear(p.byName)
		}
		p.addLocked(class)
	}
	return p.byName[class]
}

// addLocked finds a pot for a new class: a new one, or an empty one, or else one that it shares.
func (p *pots) addLocked(class uint32) {
	all := p.list()
	if len(all) < maxPots {
		made := newPot()
		more := append(all[:len(all):len(all)], made)
		p.all.Store(&more)
		p.byName[class] = made
		return
	}
	chosen := all[class%maxPots]
	for _, one := range all {
		if one.bytes.Load() == 0 {
			chosen = one
			break
		}
	}
	for name, one := range p.byName {
		if one == chosen && one.bytes.Load() == 0 {
			delete(p.byName, name)
		}
	}
	p.byName[class] = chosen
}

// list returns all pots.
func (p *pots) list() []*pot {
	all := p.all.Load()
	if all == nil {
		return nil
	}
	return *all
}

// fullest returns the pot that holds the most entries, or the most bytes, or nil if all are empty.
func (p *pots) fullest(byKeys bool) *pot {
	var fullest *pot
	most := int64(0)
	for _, one := range p.list() {
		n := one.bytes.Load()
		if byKeys {
			n = one.keys.Load()
		}
		if n > most {
			fullest, most = one, n
		}
	}
	return fullest
}

// expired returns a pot and a shard in which the first entry has expired, or nil if there is none.
func (p *pots) expired(now int64) (*pot, int) {
	for _, one := range p.list() {
		if one.soonest.Load() > now {
			continue
		}
		home, first := 0, int64(never)
		for i := range one.earliest {
			if at := one.earliest[i].Load(); at < first {
				home, first = i, at
			}
		}
		one.soonest.Store(first)
		if first <= now {
			return one, home
		}
	}
	return nil, 0
}

// first returns the shard in which the pot's next entry to forget is, and the turn of that one.
func (p *pot) first() (home int, turn int64) {
	turn = never
	for i := range p.spares {
		if at := p.spares[i].Load(); at < turn {
			home, turn = i, at
		}
	}
	return home, turn
}

// publishLocked makes known when the first entry of a shard's queue expires, and when the one does that can be spared.
func (p *pot) publishLocked(home uint8) {
	q := p.queues[home]
	first, spare := int64(never), int64(never)
	if len(q) > 0 {
		first, spare = q[0].expires, q[q.spare()].turn()
	}
	if p.earliest[home].Load() != first {
		p.earliest[home].Store(first)
		lower(&p.soonest, first)
	}
	if p.spares[home].Load() != spare {
		p.spares[home].Store(spare)
	}
}

// lower stores a number unless a lower one is there.
func lower(to *atomic.Int64, n int64) {
	for {
		now := to.Load()
		if n >= now || to.CompareAndSwap(now, n) {
			return
		}
	}
}
