package limit

import (
	"fmt"
	"time"
)

// A lease is tokens of a counter that one sidecar holds for a moment and spends without asking. A counter never lends what it does not
// have, and what is lent is out of reach for all others until it is spent, returned, or dead.
//
// A bucket does not charge what it lends: it keeps it apart, as rights of this epoch (lent) and of the one before (before), and what is
// left is burst - used - lent - before. If rights were charged when they are lent, the time until they are spent would earn them back, and
// both could be spent at once. Rights of an epoch die when the next one ends. Those that were not reported until then count as spent at
// that instant, the first one at which they cannot be spent any more.
//
// A window charges what it lends: its tokens die with it, so they cannot be spent in another one.

const (
	// LeaseEpoch is the length of an epoch. It is the same for all sidecars.
	LeaseEpoch = 100 * time.Millisecond
	// LeaseLife is the longest life of a lease: the rest of its epoch, and the next one.
	LeaseLife = 2 * LeaseEpoch
	// MaxLease is how many tokens a counter lends at most in one epoch.
	MaxLease = 1<<17 - 1

	leastLeased   = time.Second // the shortest window that lends
	epochMicros   = int64(LeaseEpoch / time.Microsecond)
	lentUnit      = 1 << 17 // of lent in a stored Rem
	offsetUnit    = 1 << 34 // of the anchor's distance in a stored Rem
	maxOffset     = 1<<19 - 1
	maxStoredUsed = 1<<32 - 1
)

// Leasable reports whether counters of the limit lend tokens. Not those of a log or a calendar, of a window below a second, nor a bucket that
// earns less than a token in an epoch.
func (l Limit) Leasable() bool {
	switch {
	case l.Algorithm.KeepsLog() || !l.Algorithm.known() || l.Calendar != nil:
		return false
	case l.Count <= 0 || l.Window < leastLeased:
		return false
	case l.Algorithm.Fills():
		return l.Count <= maxStoredUsed && l.Count >= int64(l.Window/LeaseEpoch)
	}
	return true
}

// Ask is what a sidecar asks of a counter: to take in what became of leases, and to lend more.
type Ask struct {
	Key     string
	Limit   Limit
	Want    int64     // tokens; 0: none
	Least   int64     // fewer than these are of no use: then nothing is lent
	Parts   int64     // from 1: a lease is at most this part of what is left, rounded up
	Reports [2]Report // of two epochs at most
}

// Report is what became of the tokens that were lent in one epoch. No report is ever sent twice: a token that is returned twice is
// one of another sidecar.
type Report struct {
	Epoch    int64
	Spent    int64
	Returned int64
}

// Grant is the reply to an Ask.
type Grant struct {
	Tokens int64 // lent now
	Epoch  int64 // in which they were lent: its number for a bucket, the start of a window
	Until  int64 // µs since the epoch on the store's clock: from here on they are dead
	At     int64 // the instant of the reply on that clock
	State  State // of the counter after it, as Left reads it
}

// Append packs the argument of LeaseScript. now is in microseconds since the epoch; 0 is the server's own time, and only tests give another.
func (a *Ask) Append(b []byte, now int64) []byte {
	l := rateOf(&a.Limit)
	b = append(appendNumber(b, now), byte(a.Limit.Algorithm))
	for _, n := range [...]int64{l.count, l.window, l.burst, a.Want, a.Least, a.Parts} {
		b = appendNumber(b, n)
	}
	for _, r := range a.Reports {
		b = appendNumber(appendNumber(appendNumber(b, r.Epoch), r.Spent), r.Returned)
	}
	return b
}

// grantSize is the size of the reply of LeaseScript.
const grantSize = 8 * 8

// ReadGrant reads the reply of LeaseScript. It keeps nothing of it.
func ReadGrant(reply []byte) (Grant, error) {
	if len(reply) != grantSize {
		return Grant{}, fmt.Errorf("read the reply of the script that lends: %d bytes, want %d", len(reply), grantSize)
	}
	return Grant{
		At: number(reply), Tokens: number(reply[8:]), Epoch: number(reply[16:]), Until: number(reply[24:]),
		State: State{At: number(reply[32:]), Rem: number(reply[40:]), Used: number(reply[48:]), Prev: number(reply[56:])},
	}, nil
}

// Lend takes in the reports of an Ask and lends tokens, at one instant (now: microseconds since the epoch). It is the pure twin of
// lease.lua.
func Lend(s *State, a *Ask, now int64) Grant {
	l, t := rateOf(&a.Limit), open(s)
	g := Grant{At: now, Until: now}
	if !a.Limit.Leasable() {
		g.State = *s
		return g
	}
	way := &algorithms[a.Limit.Algorithm]
	t = way.advance(t, l, now)
	for _, r := range a.Reports {
		if r.Spent+r.Returned > 0 {
			t = takeReport(t, a.Limit.Algorithm, l, r, now)
		}
	}
	t = way.advance(t, l, now)
	left := way.left(t, l, now)
	n := min(a.Want, left, ceiling(max(left, 0), max(a.Parts, 1)), MaxLease)
	if n < max(a.Least, 1) {
		n = 0
	}
	t, g.Tokens, g.Epoch, g.Until = lend(t, a.Limit.Algorithm, l, n, now)
	t.save(s)
	t.changed = true
	t.save(&g.State)
	return g
}

// takeReport takes in what became of one epoch's tokens. A report of an epoch that is over is ignored: its tokens count as spent already.
func takeReport(t tally, a Algorithm, l rate, r Report, now int64) tally {
	if !a.Fills() {
		if r.Epoch == t.At && r.Returned > 0 {
			back := min(r.Returned, t.Used)
			t.Used -= back
			t.changed = t.changed || back > 0
		}
		return t
	}
	var of *int64
	switch {
	case t.lent+t.before == 0:
		return t
	case r.Epoch == t.epoch:
		of = &t.lent
	case r.Epoch == t.epoch-1:
		of = &t.before
	default:
		return t
	}
	known := min(*of, r.Spent+r.Returned)
	*of -= known
	if spent := min(r.Spent, known); spent > 0 {
		t, _ = bucketTake(t, l, spent, now)
	}
	t.changed = t.changed || known > 0
	return t
}

// lend lends n tokens, and says when they die.
func lend(t tally, a Algorithm, l rate, n, now int64) (after tally, lent, epoch, until int64) {
	if !a.Fills() {
		until = min(t.At+l.window, now+2*epochMicros)
		t.Used += n
		t.changed = t.changed || n > 0
		return t, n, t.At, until
	}
	epoch = now / epochMicros
	if t.lent+t.before > 0 {
		epoch = max(epoch, t.epoch)
	}
	n = min(n, MaxLease-t.lent)
	if n <= 0 || t.Used+t.lent+t.before+n > maxStoredUsed || t.Used > 0 && t.At > now {
		return t, 0, epoch, now
	}
	t.lent, t.epoch, t.changed = t.lent+n, epoch, true
	return t.whole(), n, epoch, (epoch + 2) * epochMicros
}

// Left is how many tokens are left on a counter that nothing else happened to since, and the time until it is full. What is lent
// is not left.
func Left(s *State, l *Limit, now int64) (left int64, reset time.Duration) {
	r := rateOf(l)
	if r.count == 0 {
		return 0, l.Window
	}
	way := &algorithms[l.Algorithm]
	t := way.advance(open(s), r, now)
	return way.left(t, r, now), time.Duration(way.reset(t, r, now)) * time.Microsecond
}

// Lent is how many tokens of a counter are lent, as far as its state shows: a window does not.
func Lent(s *State, l *Limit) int64 {
	if !l.Algorithm.Fills() || !frozen(s, l.Count) {
		return 0
	}
	t := thaw(open(s))
	return t.lent + t.before
}

// A bucket with rights outstanding is stored as one that a version without leases can read, and takes for one with less in it: all rights
// are spent, and nothing comes back until they are dead. At is when that is, Used includes them, and Rem, which is too large to be one,
// holds the distance to the real anchor, lent and before.

// frozen reports whether a state is stored so. A count that is lowered may leave a large Rem behind, but hardly at the end of an epoch; then some
// of what is used would count as lent for a moment.
func frozen(s *State, count int64) bool {
	if s.Rem < offsetUnit || s.Used > maxStoredUsed || count > maxStoredUsed || s.At%epochMicros != 0 {
		return false
	}
	rights := s.Rem%lentUnit + s.Rem/lentUnit%lentUnit
	return rights > 0 && rights <= s.Used
}

// thaw reads such a state.
func thaw(t tally) tally {
	t.before = t.Rem % lentUnit
	t.lent = t.Rem / lentUnit % lentUnit
	t.epoch = t.At/epochMicros - 2
	t.At -= t.Rem / offsetUnit
	t.Used -= t.lent + t.before
	t.Rem = 0
	return t
}

// freeze writes it. Where the anchor does not fit, all rights are charged when they die.
func (t *tally) freeze() {
	dead := (t.epoch + 2) * epochMicros
	offset := dead - t.At
	if t.Used == 0 {
		offset = 1
	}
	t.At, t.Used = dead, t.Used+t.lent+t.before
	t.Rem = 0
	if offset >= 1 && offset <= maxOffset {
		t.Rem = offset*offsetUnit + t.lent*lentUnit + t.before
	}
	t.lent, t.before = 0, 0
}

// whole moves the anchor of a bucket with rights outstanding to a whole microsecond, so that it can be stored.
func (t tally) whole() tally {
	if t.Rem > 0 {
		t.At, t.Rem = t.At+1, 0
	}
	return t
}

// bucketRoll lets the rights of epochs that are over count as spent at the instant at which they died. Epochs never run backwards,
// but for a clock that was set back by more than a lease lives: then all rights count as spent now.
func bucketRoll(t tally, l rate, now int64) tally {
	if frozen(&t.State, l.count) {
		t = thaw(t)
	}
	epoch := now / epochMicros
	if t.lent+t.before == 0 || epoch == t.epoch {
		return t
	}
	if t.epoch > epoch+2 {
		rights := t.lent + t.before
		t.lent, t.before, t.changed = 0, 0, true
		t, _ = bucketTake(t, l, rights, now)
		return t
	}
	for t.epoch < epoch && t.lent+t.before > 0 {
		t.epoch++
		if t.before > 0 {
			died := t.epoch * epochMicros
			t = bucketEarn(t, l, died)
			t, _ = bucketTake(t, l, t.before, died)
		}
		t.before, t.lent = t.lent, 0
	}
	return t
}
