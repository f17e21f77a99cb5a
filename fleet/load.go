package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	fewest    = 16                     // calls under way that a server is always trusted with
	keyShare  = 4                      // under overload one key has at most this part of the room,
	callShare = 2                      // and one caller this part
	turnSlots = 256                    // keys, and callers, are told apart by this many numbers
	paceEvery = 50 * time.Millisecond  // in which replies are counted
	paceGrows = 100 * time.Millisecond // after which a bound that held is raised by a quarter
	paceHolds = time.Second            // likewise, while replies still wait in line for long; before that it is not raised at all
)

// load bounds the calls under way to one server. There is no bound but the largest until calls run out of patience while the server
// answers: then the number of replies that came in the last moments is what can be done, and a call is sent only if those before it
// can be answered within half of its patience. While replies come much sooner than that, or no call was late for a second, the bound is
// raised again.
type load struct {
	most    int64 // calls under way at most, whatever is known
	flight  atomic.Int64
	replies atomic.Int64
	pace    atomic.Int64 // replies a second that can be relied on; 0: more than arrives
	bounded atomic.Int64 // process time since when there is a pace; 0: there is none
	keys    [turnSlots]atomic.Int32
	callers [turnSlots]atomic.Int32

	mu      sync.Mutex // guards all below
	counted int64      // replies at the beginning of this period
	since   time.Duration
	rate    int64 // replies a second in the last period
	raised  time.Duration
	allowed time.Duration // the patience of the last call that ran out of it
	latest  time.Duration // when that was
}

// turn is the room that a call has. It has to be given back.
type turn struct{ key, caller *atomic.Int32 } // of its key and its caller; nil: it is not counted by that

// enter makes room for a call that waits at most so long, and reports whether there is any. lined is how long calls wait in line.
func (b *load) enter(c *Call, allow, lined time.Duration) (turn, bool) {
	n := b.flight.Add(1)
	var t turn
	if b.fits(n, c, allow, lined, &t) {
		return t, true
	}
	b.leave(t)
	return turn{}, false
}

func (b *load) fits(n int64, c *Call, allow, lined time.Duration, t *turn) bool {
	pace := b.pace.Load()
	if pace == 0 {
		return n <= b.most
	}
	pace = b.raise(pace, lined)
	room := min(max(int64(float64(pace)*allow.Seconds()/2), fewest), b.most)
	if n > room {
		return false
	}
	t.key = &b.keys[hash64(c.Key)%turnSlots]
	if int64(t.key.Add(1)) > max(room/keyShare, 1) {
		return false
	}
	if c.Caller == "" {
		return true
	}
	t.caller = &b.callers[hash64(c.Caller)%turnSlots]
	return int64(t.caller.Add(1)) <= max(room/callShare, 1)
}

// leave gives a call's room back.
func (b *load) leave(t turn) {
	b.flight.Add(-1)
	if t.key != nil {
		t.key.Add(-1)
	}
	if t.caller != nil {
		t.caller.Add(-1)
	}
}

// did counts replies.
func (b *load) did(n int) { b.replies.Add(int64(n)) }

// late takes down what was done lately as what can be done: a call with this patience ran out of it.
func (b *load) late(allowed time.Duration) {
	now := processTime()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.countLocked(now)
	b.raised, b.latest, b.allowed = now, now, allowed
	if b.rate > 0 {
		b.pace.Store(b.rate)
		b.bounded.CompareAndSwap(0, int64(now))
	}
}

// excuses reports whether a call that began then may be late: there was no bound yet.
func (b *load) excuses(began time.Duration) bool {
	since := b.bounded.Load()
	return since > 0 && int64(began) < since
}

// tick counts the replies of a period when it has passed.
func (b *load) tick(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.countLocked(now)
}

func (b *load) countLocked(now time.Duration) {
	passed := now - b.since
	if passed < paceEvery {
		return
	}
	replies := b.replies.Load()
	if passed < 4*paceEvery {
		b.rate = int64(float64(replies-b.counted) / passed.Seconds())
	}
	b.counted, b.since = replies, now
}

// raise is the pace that can be relied on now. It grows while calls wait in line for less than a quarter of the patience that was not
// enough, and slowly when no call was late for a while. One that has grown for long enough is no bound.
func (b *load) raise(pace int64, lined time.Duration) int64 {
	now := processTime()
	b.mu.Lock()
	defer b.mu.Unlock()
	every := paceGrows
	if lined >= b.allowed/4 {
		every = paceHolds
		if now-b.latest < paceHolds {
			b.raised = now
		}
	}
	steps := int64((now - b.raised) / every)
	if steps <= 0 {
		return pace
	}
	b.raised += time.Duration(steps) * every
	for range min(steps, 64) {
		pace += pace/4 + 1
	}
	if pace > unbounded {
		b.pace.Store(0)
		b.bounded.Store(0)
		return unbounded
	}
	b.pace.Store(pace)
	return pace
}

// unbounded is a pace that no server keeps.
const unbounded = 10_000_000

// usual is how long a server usually takes to reply, and how much that varies, both smoothed.
type usual struct {
	ns, varies atomic.Int64
	least      atomic.Int64 // the shortest time so far, which is that of the way to the server and back; 0: not known
}

// add takes in another time. One that is far out moves it little, so that one stall does not.
func (u *usual) add(took time.Duration) {
	old, varies := u.ns.Load(), u.varies.Load()
	if least := u.least.Load(); least == 0 || int64(took) < least {
		u.least.Store(max(int64(took), 1))
	}
	off := min(int64(took), 2*old+int64(time.Millisecond)) - old
	u.ns.Store(old + off/8)
	u.varies.Store(varies + (max(off, -off)-varies)/4)
}

// begin takes in how long a greeting took, which is the first that is known.
func (u *usual) begin(took time.Duration) {
	if !u.ns.CompareAndSwap(0, int64(took)) {
		u.add(took)
	}
}

// lined is how long a call usually waits in line: what the way to the server and back does not take.
func (u *usual) lined() time.Duration { return max(time.Duration(u.ns.Load()-u.least.Load()), 0) }

// time is how long the server usually takes.
func (u *usual) time() time.Duration { return time.Duration(u.ns.Load()) }

// bound is a time that replies hardly ever take: four times the usual, or more where they vary much.
func (u *usual) bound() time.Duration {
	mean, varies := u.ns.Load(), u.varies.Load()
	return time.Duration(max(4*mean, mean+8*varies))
}
