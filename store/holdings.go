package store

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Bounds of holdings.
const (
	holdingSlots = 4096 // counters that tokens are held of, at most
	heatSlots    = 8192 // counters whose calls are counted
	hotHits      = 8    // calls within hotWithin that make a counter hot
	hotWithin    = 100 * time.Millisecond
	hotFrom      = 40 * time.Millisecond  // after the first of them: a lone burst is over by then
	leaseSpan    = 100 * time.Millisecond // the time for which a lease should last
	leaseLeast   = 8                      // tokens; fewer are not worth a lease
	leaseParts   = 4                      // a sidecar gets at most this part of its share of what is left
	idleAfter    = 50 * time.Millisecond  // without a call: what is held is returned
	tickEvery    = 20 * time.Millisecond  // how often idle holdings are looked for
	dyingIn      = 40 * time.Millisecond  // before its end what is left of a lot is returned
	pauseAfter   = 20 * time.Millisecond  // after a counter lent nothing, or the call failed
)

// holdings are tokens of hot counters that this process has on lease from the server: it spends them without asking. limit/lease.go says
// why that never admits more than the limit.
//
// The end of a lease is counted from before the call was sent, so it is never after the server's. Every spend looks at it.
type holdings struct {
	redis        *Redis
	now          func() time.Time
	start        time.Time
	sharers      func() int64                          // how many sidecars lease from the same counters
	sharersKnown func() bool                           // that number is known
	young        func(key string, l *limit.Limit) bool // the server of a counter has just succeeded another one
	seed         maphash.Seed
	onHeld       func(c limit.Charge, n int64) // is told what requests spent of what is held; nil: nothing is

	kept   atomic.Int64 // holdings that there are
	resets atomic.Int64 // counters that were reset
	slots  [holdingSlots]atomic.Pointer[holding]
	heat   [heatSlots]atomic.Uint64

	mu      sync.Mutex // guards all holdings, and all below
	turn    uint64     // number of the request that takes something
	all     []*holding
	ticking bool
	closed  bool
	calls   errands // calls of the script that lends

	decided  atomic.Int64 // charges decided here
	asks     atomic.Int64 // calls of the script that lends
	granted  atomic.Int64 // tokens
	returned atomic.Int64 // tokens
	expired  atomic.Int64 // tokens
	drops    atomic.Int64 // hot counters of which nothing is held, because another one has their place
	blocked  atomic.Int64 // refusals by a counter that had the tokens, but had lent them
}

// holding is what is held of one counter.
type holding struct {
	key   string
	slot  *atomic.Pointer[holding]
	limit limit.Limit
	class uint32 // of the charge
	share string // of the charge
	most  int64  // tokens of one lease

	lots    [2]lot // the older one first
	asking  bool
	arrived chan struct{} // closed when the call that is under way is over; nil: nothing waits for it
	ended   bool          // it is no longer kept
	pause   instant       // no call is made before
	used    instant       // when a call last wanted something

	untold  int64   // tokens that requests spent, and that onHeld was not told of
	wanted  int64   // tokens that calls wanted since counted
	counted instant // when counting began
	rate    float64 // tokens that calls want in a second

	state  limit.State // of the counter, as the server last told
	server int64       // µs on the server then
	sent   instant     // just before the server was asked
	less   int64       // tokens that the server has fewer than that state lets expect, by what it decided since
	flight int64       // tokens that the server is asked for by requests just now
	wants  int64       // tokens that the call that is under way asks for
	guards int         // requests that the server decides while nothing more is lent
	void   bool        // what the call that is under way brings is worth nothing

	turn uint64 // of the request that last took something
	back int64  // tokens that a request puts back
}

// lot is what is held of one epoch's lease.
type lot struct {
	epoch int64
	held  int64
	taken int64   // by requests that the server has not decided yet
	spent int64   // and not yet reported
	until instant // the end of the lease
}

// heldPart is what one charge took from a holding.
type heldPart struct {
	of    *holding
	epoch int64
	n     int64
}

func newHoldings(r *Redis, now func() time.Time) *holdings {
	return &holdings{
		redis: r, now: now, start: now(), seed: maphash.MakeSeed(),
		sharers: r.sharers, sharersKnown: r.sharersKnown, young: r.young,
	}
}

// sharers is how many sidecars share the counters of this one, at most.
func (r *Redis) sharers() int64 {
	if r.heart == nil {
		return 1
	}
	most := 1
	for _, domain := range *r.heart.domains.Load() {
		most = max(most, r.heart.count(domain))
	}
	return int64(most)
}

// sharersKnown reports whether the number of sidecars is known. Until then nothing is leased.
func (r *Redis) sharersKnown() bool { return r.heart == nil || r.heart.live.Load() != nil }

// young reports whether the server of a counter has just succeeded another one. It may not know of all that was lent.
func (r *Redis) young(key string, l *limit.Limit) bool {
	n, _ := r.place(&limit.Charge{Key: key, Limit: *l})
	return n.Settling()
}

// mayLease reports whether a charge can be made from what is held.
func mayLease(c *limit.Charge) bool {
	return c.Lease > 0 && (c.Op == limit.Spend || c.Op == limit.Peek) && c.MaxWait == 0 && c.Penalty == nil
}

// find is the holding of a charge's counter, nil if there is none, or none that matters to the charge.
func (h *holdings) find(c *limit.Charge) *holding {
	if !mayLease(c) && c.Op != limit.Refund {
		return nil
	}
	l := h.slots[maphash.String(h.seed, c.Key)%holdingSlots].Load()
	if l == nil || l.key != c.Key {
		return nil
	}
	return l
}

// instant is a moment on two clocks, in ns. The monotonic one may stand still while the machine is suspended, and the wall's may be set
// back, so the one that has moved further decides.
type instant struct{ mono, wall int64 }

// instantOf is the moment of a reading of both clocks.
func (h *holdings) instantOf(t time.Time) instant {
	return instant{int64(t.Sub(h.start)), t.UnixNano()}
}

func (h *holdings) instant() instant { return h.instantOf(h.now()) }

// plus is the moment so much later.
func (i instant) plus(d time.Duration) instant { return instant{i.mono + int64(d), i.wall + int64(d)} }

// since is the time from another moment to this one.
func (i instant) since(at instant) time.Duration {
	return time.Duration(max(i.mono-at.mono, i.wall-at.wall))
}

// live reports whether the lot can be spent.
func (l *lot) live(now instant) bool { return l.held > 0 && now.since(l.until) < 0 }

// left is what is held.
func (l *holding) left(now instant) (n int64) {
	for i := range l.lots {
		if l.lots[i].live(now) {
			n += l.lots[i].held
		}
	}
	return n
}

// take takes n tokens of one lot, the one that dies first.
func (l *holding) take(n int64, now instant) (epoch int64, ok bool) {
	for i := range l.lots {
		if lot := &l.lots[i]; lot.live(now) && lot.held >= n {
			lot.held -= n
			lot.taken += n
			return lot.epoch, true
		}
	}
	return 0, false
}

// settle ends take, if the lot is still there: what was taken is spent, or held again.
func (l *holding) settle(p heldPart, spent bool) {
	for i := range l.lots {
		lot := &l.lots[i]
		if lot.epoch != p.epoch || lot.taken < p.n {
			continue
		}
		lot.taken -= p.n
		if spent {
			lot.spent += p.n
		} else {
			lot.held += p.n
		}
		return
	}
}

// spend decides a request from what is held, as far as it can: the whole of it, or some charges of it, while the server is asked for the
// others. It reports whether the request is decided.
func (h *holdings) spend(ctx context.Context, t *trip) bool {
	if !h.holds(t) {
		return false
	}
	taken, dry := h.takeAll(t)
	if dry != nil && h.await(dry, h.redis.allowance(ctx)/2) {
		h.settle(t, none)
		taken, _ = h.takeAll(t)
	}
	if taken == len(t.charges) {
		h.decided.Add(int64(taken))
		return true
	}
	if taken > 0 && hasQuota(t.charges) {
		// Quotas refuse a request only all together, so they are decided together.
		h.settle(t, none)
		clear(t.held)
		taken = 0
	}
	h.release(ctx, t)
	if taken == 0 {
		return false
	}
	h.decided.Add(int64(taken))
	h.askMissing(ctx, t)
	return true
}

// holds finds the holdings of a request's counters, and reports whether there is one.
func (h *holdings) holds(t *trip) (some bool) {
	if h.kept.Load() == 0 {
		return false
	}
	t.near = grow(t.near, len(t.charges))
	for i := range t.charges {
		t.near[i] = h.find(&t.charges[i])
		some = some || t.near[i] != nil
	}
	return some
}

// takeAll takes what is held of each charge, under one lock. It returns how many charges have all they need, and a holding that
// had too little while more is on its way. Where all have it, what they took is spent.
func (h *holdings) takeAll(t *trip) (taken int, dry *holding) {
	t.held = grow(t.held, len(t.charges))
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	h.turn++
	t.again = false
	for i := range t.charges {
		l := t.near[i]
		if l == nil || l.ended {
			continue
		}
		if !sameLimit(&l.limit, &t.charges[i].Limit) {
			h.endLocked(l, now)
			continue
		}
		if h.takeLocked(t, i, l, now) {
			taken++
		} else if l.asking && dry == nil {
			dry = l
		}
	}
	if t.again {
		t.tellHeld(now)
	}
	if taken == len(t.charges) {
		h.settleLocked(t, all)
	}
	return taken, dry
}

// takeLocked decides one charge from a holding, and reports whether that has enough.
func (h *holdings) takeLocked(t *trip, i int, l *holding, now instant) bool {
	c := &t.charges[i]
	if c.Op == limit.Refund {
		return false
	}
	n := max(c.Cost, 0)
	if c.Op == limit.Peek {
		if l.left(now) < n {
			return false
		}
		n = 0
	}
	l.used = now
	epoch, ok := l.take(n, now)
	if ok {
		l.wanted += n
		t.again, l.turn = t.again || l.turn == h.turn, h.turn
		t.held[i] = heldPart{of: l, epoch: epoch, n: n}
		l.tell(&t.decisions[i], n, now)
	}
	if l.runsDry(now) {
		h.askLocked(l, now, false)
	}
	return ok
}

// tell fills in the decision of a charge that a holding admits. What is left is what is held and what the server has, as far as known.
func (l *holding) tell(d *limit.Decision, n int64, now instant) {
	at := l.server + microsUp(now.since(l.sent))
	left, reset := limit.Left(&l.state, &l.limit, at)
	capacity := l.limit.Capacity()
	remaining := min(max(left-l.less, 0)+l.left(now), capacity)
	if l.limit.Algorithm.Fills() {
		reset = time.Duration(float64(capacity-remaining) / float64(l.limit.Count) * float64(l.limit.Window)).Truncate(time.Microsecond)
	}
	*d = limit.Decision{Outcome: limit.Allowed, Remaining: remaining, Charged: n, At: at, ResetAfter: reset, Held: true}
}

// settle ends what charges took: it is spent by those for which spends is true, and held again of the others.
func (h *holdings) settle(t *trip, spends func(i int) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.settleLocked(t, spends)
}

func (h *holdings) settleLocked(t *trip, spends func(i int) bool) {
	back := false
	for i, p := range t.held {
		if p.of == nil {
			continue
		}
		spent := spends(i)
		p.of.settle(p, spent)
		if spent {
			p.of.untold += p.n
		} else if t.decisions[i].Held {
			t.decisions[i].Charged, p.of.back, back = 0, p.of.back+p.n, true
		}
		if p.of.ended {
			h.tellLocked(p.of)
			h.returnLocked(p.of)
		}
	}
	if back {
		t.tellBack()
	}
}

// all and none are what settle asks of each charge.
func all(int) bool  { return true }
func none(int) bool { return false }

// askMissing asks the server for the charges that are not decided by what is held. If they refuse the request, what was taken from holdings is
// held again, but for charges that count all the same.
func (h *holdings) askMissing(ctx context.Context, t *trip) {
	rest := h.redis.scratch.Get().(*trip)
	t.missing, t.places = t.missing[:0], t.places[:0]
	for i := range t.charges {
		if t.held[i].of == nil {
			t.missing, t.places = append(t.missing, t.charges[i]), append(t.places, i)
		}
	}
	t.answers = grow(t.answers, len(t.missing))
	rest.charges, rest.decisions = t.missing, t.answers
	h.redis.strictly(ctx, rest)
	h.redis.scratch.Put(rest.reset())
	for i, place := range t.places {
		t.decisions[place] = t.answers[i]
	}
	refused := limit.Refuses(t.charges, t.decisions)
	h.settle(t, func(i int) bool { return !refused || t.charges[i].Each })
}

// sameLimit reports whether two limits count alike.
func sameLimit(a, b *limit.Limit) bool {
	return a.Count == b.Count && a.Burst == b.Burst && a.Window == b.Window && a.Algorithm == b.Algorithm && a.Calendar == b.Calendar
}
