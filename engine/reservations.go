package engine

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	// defaultReserved is the memory for reservations where none is given, in bytes: for some 100,000 counters.
	defaultReserved = 40 << 20
	// reservedBytes is what is kept for a counter without its key: an entry and its place in a map, which grows by
	// halves.
	reservedBytes = 288
	// classShare is how many times what is free one class of charges may take. So one class alone takes eight ninths of
	// the room, and there is always some left for another.
	classShare = 8
)

// reservations are what post-paid requests took in advance at this sidecar, until their real cost settles it. A cost
// without a reservation is charged in full: of a request that was refused, or whose reservation time has given back.
type reservations struct {
	bound   int64        // bytes
	dropped atomic.Int64 // reservations that were not kept for want of room; they stay charged beside the cost

	mu      sync.Mutex // guards all below
	held    map[string]*reserved
	used    int64
	classes map[uint32]int64 // of used, what each class of charges takes
}

// reserved is the reservations on one counter.
type reserved struct {
	class  uint32
	count  int64
	tokens int64 // that they took together
	until  int64 // when time has given all of it back, in µs on the store's clock
}

func newReservations(bytes int64) reservations {
	bytes = cmp.Or(max(bytes, 0), defaultReserved)
	return reservations{bound: bytes, held: make(map[string]*reserved), classes: make(map[uint32]int64)}
}

// settle changes charges of a cost whose request has a reservation: to what is above the reservation, or to a refund of
// what is left of it.
func (e *Engine) settle(v *Verdict) {
	for i := range v.Match.Terms {
		c := &v.Match.Charges[i]
		if v.Match.Terms[i].Effect.Reserve == 0 || c.Op != limit.Debit {
			continue
		}
		took, until, ok := e.reserved.take(c.Key, e.cfg.Clock.Now().UnixMicro())
		if !ok {
			continue
		}
		c.Cost -= took
		v.Match.Terms[i].Settled = took
		if c.Cost < 0 {
			c.Op, c.Cost, c.Until = limit.Refund, -c.Cost, until
		}
	}
}

// reserve notes what an admitted request took in advance.
func (e *Engine) reserve(v *Verdict) {
	for i := range v.Decisions {
		d, c := &v.Decisions[i], &v.Match.Charges[i]
		if v.Match.Terms[i].Effect.Reserve > 0 && c.Op == limit.Spend && d.Outcome == limit.Allowed && d.Charged > 0 {
			e.reserved.hold(c, limit.RefundUntil(c.Limit, d), e.cfg.Clock.Now().UnixMicro())
		}
	}
}

// hold keeps one reservation more.
func (r *reservations) hold(c *limit.Charge, until, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held[c.Key]
	if held == nil {
		if !r.roomLocked(c, now) {
			r.dropped.Add(1)
			return
		}
		held = &reserved{class: c.Class}
		r.held[c.Key] = held
		r.addLocked(c.Class, sizeOf(c.Key))
	}
	if held.until < now {
		held.count, held.tokens = 0, 0
	}
	held.count, held.tokens, held.until = held.count+1, held.tokens+c.Cost, max(held.until, until)
}

// take ends one reservation, and reports whether there is one. What it took is the mean of all on its counter: the rule
// may have reserved another number for some of them.
func (r *reservations) take(key string, now int64) (tokens, until int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held[key]
	if held == nil {
		return 0, 0, false
	}
	tokens, ok = held.tokens/held.count, held.until >= now
	held.count, held.tokens = held.count-1, held.tokens-tokens
	if held.count == 0 || !ok {
		r.forgetLocked(key, held)
	}
	return tokens, held.until, ok
}

// roomLocked reports whether there is room for one more counter of the charge's class. It forgets some of what is over
// first, because a look at all would hold up every post-paid request.
func (r *reservations) roomLocked(c *limit.Charge, now int64) bool {
	looks := 16
	for key, held := range r.held {
		if held.until < now {
			r.forgetLocked(key, held)
		}
		if looks--; looks == 0 {
			break
		}
	}
	free := r.bound - r.used
	return free >= sizeOf(c.Key) && r.classes[c.Class] < classShare*free
}

func (r *reservations) forgetLocked(key string, held *reserved) {
	delete(r.held, key)
	r.addLocked(held.class, -sizeOf(key))
}

// sizeOf is how many bytes are kept for a counter. The allocator rounds keys up by at most a quarter.
func sizeOf(key string) int64 { return reservedBytes + int64(len(key)+len(key)/4) }

func (r *reservations) addLocked(class uint32, bytes int64) {
	r.used += bytes
	r.classes[class] += bytes
	if r.classes[class] == 0 {
		delete(r.classes, class)
	}
}
