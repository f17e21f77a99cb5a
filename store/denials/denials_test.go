package denials

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// desk is Denials with a clock that a test turns, in front of a store of Go twins on the same clock.
type desk struct {
	*testing.T
	*Denials
	now      time.Time
	counters map[string]*limit.Counter
	coolings map[string]*limit.Cooling
	calls    int
}

func newDesk(t *testing.T) *desk {
	now := time.Now()
	now = now.Add(now.Truncate(time.Hour).Add(2 * time.Hour).Sub(now)) // a border of windows
	return &desk{
		T: t, Denials: New(1000, 0), now: now,
		counters: map[string]*limit.Counter{}, coolings: map[string]*limit.Cooling{},
	}
}

func (d *desk) turn(by time.Duration) { d.now = d.now.Add(by) }

// decide is the store.
func (d *desk) decide(charges []limit.Charge, refused bool) []limit.Decision {
	counters, coolings := make([]*limit.Counter, len(charges)), make([]*limit.Cooling, len(charges))
	for i, c := range charges {
		if d.counters[c.Key] == nil {
			d.counters[c.Key] = new(limit.Counter)
		}
		counters[i] = d.counters[c.Key]
		if c.Penalty != nil {
			if d.coolings[c.PenaltyKey] == nil {
				d.coolings[c.PenaltyKey] = new(limit.Cooling)
			}
			coolings[i] = d.coolings[c.PenaltyKey]
		}
	}
	decisions := make([]limit.Decision, len(charges))
	limit.Decide(d.now.UnixMicro(), refused, charges, counters, coolings, decisions)
	for i := range charges {
		if c := &charges[i]; c.Penalty != nil && c.Punishes(decisions[i]) {
			decisions[i].Punished(c, coolings[i].Punish(c.Penalty, d.now.UnixMicro()))
		}
	}
	return decisions
}

// ask decides a request as the store in front of Redis does, and returns how many charges were sent.
func (d *desk) ask(charges ...limit.Charge) (r *limit.Request, sent int) {
	r = request(charges...)
	if d.Refuse(r, d.now) {
		return r, 0
	}
	refused := d.Known(r, d.now, false)
	var open []limit.Charge
	var places []int
	for i, c := range charges {
		if r.Decisions[i].Outcome == limit.Undecided {
			open, places = append(open, c), append(places, i)
		}
	}
	if len(open) > 0 {
		d.calls++
	}
	for i, decision := range d.decide(open, refused) {
		r.Decisions[places[i]] = decision
	}
	d.Learn(r, d.now, d.now)
	return r, len(open)
}

func request(charges ...limit.Charge) *limit.Request {
	return &limit.Request{Charges: charges, Decisions: make([]limit.Decision, len(charges))}
}

func charge(key string, l limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Key: key, Limit: l, Cost: cost}
}

func of(a limit.Algorithm, count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: a, Count: count, Window: window, Burst: count}
}

var (
	bucket  = of(limit.TokenBucket, 10, time.Minute) // a token each 6 s
	fixed   = of(limit.FixedWindow, 10, time.Minute)
	sliding = of(limit.SlidingWindow, 10, time.Minute)
	logged  = of(limit.SlidingLog, 10, time.Minute)
)

// spent spends all of a counter, and sees a refusal of a cost.
func (d *desk) spent(l limit.Limit, cost int64) {
	d.ask(charge("key", l, 10))
	d.ask(charge("key", l, cost))
}

// TestADenialIsExact: what is answered here is what the store would answer, and is sent when the store may admit it.
func TestADenialIsExact(t *testing.T) {
	for _, l := range []limit.Limit{bucket, fixed, sliding, logged} {
		for _, cost := range []int64{1, 3, 10, 11} {
			t.Run(fmt.Sprint(l.Algorithm, " ", cost), func(t *testing.T) {
				d := newDesk(t)
				d.spent(l, cost)
				for range 130 {
					d.turn(777 * time.Millisecond)
					c := charge("key", l, cost)
					r := request(c)
					if !d.Refuse(r, d.now) {
						d.ask(c)
						continue
					}
					got, want := r.Decisions[0], d.decide([]limit.Charge{c}, true)[0]
					early := got.RetryAfter - want.RetryAfter
					if want.Outcome != limit.Refused || early < -time.Microsecond || early > 0 || !got.Cached {
						t.Fatalf("answered %+v, want %+v", got, want)
					}
				}
			})
		}
	}
}

// TestOtherCosts: a larger cost is known to be refused where nothing but time brings tokens back, a smaller one never.
func TestOtherCosts(t *testing.T) {
	for name, c := range map[string]struct {
		limit   limit.Limit
		lease   int64
		known   int64 // cost that was refused
		asked   int64
		refused bool
	}{
		"bucket, larger":          {bucket, 0, 1, 5, true},
		"bucket that lends":       {bucket, 9, 1, 5, false},
		"bucket that lends, same": {bucket, 9, 1, 1, true},
		"bucket, above the burst": {bucket, 0, 1, 11, true},
		"window, larger":          {fixed, 0, 1, 5, true},
		"window, above the count": {fixed, 0, 1, 11, true},
		"sliding window, larger":  {sliding, 0, 1, 5, false},
		"log, larger":             {logged, 0, 1, 5, false},
		"smaller":                 {fixed, 0, 2, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.ask(charge("key", c.limit, 10))
			known, asked := charge("key", c.limit, c.known), charge("key", c.limit, c.asked)
			known.Lease, asked.Lease = c.lease, c.lease
			d.ask(known)
			d.turn(time.Millisecond)
			r := request(asked)
			if got := d.Refuse(r, d.now); got != c.refused {
				t.Fatalf("known: %v, want %v", got, c.refused)
			}
			want := d.decide(r.Charges, true)[0].RetryAfter
			if off := r.Decisions[0].RetryAfter - want; c.refused && off.Abs() > time.Microsecond {
				t.Errorf("retry after %v, want %v", r.Decisions[0].RetryAfter, want)
			}
		})
	}
}

func TestAChangedLimitIsAsked(t *testing.T) {
	d := newDesk(t)
	d.spent(bucket, 1)
	if d.Refuse(request(charge("key", of(limit.TokenBucket, 20, time.Minute), 1)), d.now) {
		t.Error("another limit was refused")
	}
}

// TestOneCallASecondIsTheQuestion: it is sent whole, others are refused meanwhile, and a lost reply ends nothing.
func TestOneCallASecondIsTheQuestion(t *testing.T) {
	d := newDesk(t)
	c, beside := charge("key", fixed, 1), limit.Charge{Key: "tree", Limit: fixed, Cost: 1, Each: true}
	d.spent(fixed, 1)
	d.turn(time.Second)
	if d.Refuse(request(c), d.now) {
		t.Fatal("the question is due")
	}
	if r := request(c, beside); d.Known(r, d.now, false) || r.Decisions[0].Outcome != limit.Undecided {
		t.Fatal("the question is asked with all charges")
	}
	if !d.Refuse(request(c), d.now) {
		t.Error("another caller is refused while the question is on its way")
	}
	d.turn(time.Second - 1)
	if !d.Refuse(request(c), d.now) {
		t.Error("a second has not passed")
	}
	d.turn(1)
	if d.Refuse(request(c), d.now) {
		t.Error("the next question is due though the first one was lost")
	}
	if s := d.Stats(); s.Questions != 1 {
		t.Errorf("%+v, want one question", s)
	}
}

func TestAReturnElsewhereIsSeenWithinASecond(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	*d.counters["key"] = limit.Counter{}
	d.turn(time.Second)
	if r, _ := d.ask(charge("key", fixed, 1)); r.Decisions[0].Outcome != limit.Allowed {
		t.Errorf("%+v, want allowed", r.Decisions[0])
	}
	if d.Refuse(request(charge("key", fixed, 1)), d.now) {
		t.Error("a reply that admits ends the denial")
	}
}

// TestAFloodCostsACallASecond, with what it shows of limits that have room.
func TestAFloodCostsACallASecond(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	d.calls = 0
	for range 10_000 {
		r, _ := d.ask(charge("key", fixed, 1), charge("room", bucket, 1))
		if room := r.Decisions[1]; !limit.Refuses(r.Charges, r.Decisions) || room.Remaining != 10 {
			t.Fatalf("%+v", r.Decisions)
		}
		d.turn(time.Millisecond)
	}
	if d.calls > 22 { // one for each of the two counters
		t.Errorf("%d calls in ten seconds", d.calls)
	}
}

func TestChargesThatCountAllTheSameAreSent(t *testing.T) {
	tree := func(key string, cost int64) limit.Charge {
		return limit.Charge{Key: key, Limit: fixed, Cost: cost, Each: true}
	}
	d := newDesk(t)
	d.ask(tree("key", 12)) // takes what is left
	d.ask(tree("key", 1))
	r, sent := d.ask(tree("key", 1), tree("other", 1))
	if sent != 1 || !r.Decisions[0].Cached || r.Decisions[1].Charged != 1 {
		t.Errorf("%d sent: %+v, want the second one sent and charged", sent, r.Decisions)
	}
	if _, sent := d.ask(tree("key", 5)); sent != 0 {
		t.Errorf("%d sent, want none: nothing is left to take", sent)
	}
	d = newDesk(t)
	d.ask(charge("key", fixed, 8))
	d.ask(charge("key", fixed, 3))
	if r, _ := d.ask(tree("key", 3)); r.Decisions[0].Charged != 2 {
		t.Errorf("%+v, want what was left taken", r.Decisions)
	}
}

func TestModes(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	shadow, quota := charge("key", fixed, 1), charge("key", fixed, 1)
	shadow.Mode, quota.Mode = limit.Shadow, limit.Quota
	r, sent := d.ask(shadow, charge("room", fixed, 1))
	if sent != 1 || !r.Decisions[0].Cached || r.Decisions[1].Charged != 1 {
		t.Errorf("shadow: %d sent: %+v", sent, r.Decisions)
	}
	other := quota
	other.Key = "other"
	if r, sent := d.ask(quota, other); sent != 2 || r.Decisions[1].Charged != 1 {
		t.Errorf("quotas refuse only together: %d sent: %+v", sent, r.Decisions)
	}
	r = request(quota, other)
	for i := range r.Decisions {
		r.Decisions[i] = limit.Decision{Reason: "breaker_open"}
	}
	if d.Known(r, d.now, true) || r.Decisions[0].Outcome != limit.Refused || r.Decisions[1].Reason != "breaker_open" {
		t.Errorf("%+v: a quota that is known to be spent is refused when the store cannot decide", r.Decisions)
	}
}

func TestAKnownDenialOutlivesTheStore(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	d.turn(time.Second)
	r := request(charge("key", fixed, 1), charge("other", fixed, 1))
	d.Known(r, d.now, false)
	for i := range r.Decisions {
		r.Decisions[i] = limit.Decision{Reason: "timeout", Unknown: true}
	}
	d.turn(5 * time.Second)
	if !d.Known(r, d.now, true) || r.Decisions[0].Outcome != limit.Refused || r.Decisions[1].Reason != "timeout" {
		t.Errorf("%+v, want the known one refused", r.Decisions)
	}
}

func TestRefundsEndWhatIsKnown(t *testing.T) {
	for _, op := range []limit.Op{limit.Refund, limit.Debit} {
		d := newDesk(t)
		d.spent(fixed, 1)
		back := request(limit.Charge{Key: "key", Limit: fixed, Cost: 1, Op: op})
		back.Decisions[0] = limit.Decision{Reason: "timeout", Unknown: true}
		if d.Refuse(back, d.now) || d.Known(back, d.now, true) {
			t.Fatal("it has to be sent")
		}
		old := d.now
		d.turn(time.Millisecond)
		d.Learn(back, old, d.now)
		if d.Refuse(request(charge("key", fixed, 1)), d.now) {
			t.Error("a denial from before is still known")
		}
		late := request(charge("key", fixed, 1))
		late.Decisions = d.decide(late.Charges, false)
		d.Learn(late, old, d.now)
		if d.Refuse(late, d.now) {
			t.Error("an answer to a question from before was remembered")
		}
	}
}

// TestRepliesComeInAnyOrder: the older one changes nothing, but a clock of the server that was set back does not matter
// for long.
func TestRepliesComeInAnyOrder(t *testing.T) {
	d := newDesk(t)
	d.ask(charge("key", fixed, 9))
	c := charge("key", fixed, 1)
	older, newer := request(c), request(c)
	older.Decisions = d.decide(older.Charges, false)
	sent := d.now
	d.turn(time.Millisecond)
	newer.Decisions = d.decide(newer.Charges, false)
	d.Learn(newer, sent, d.now)
	d.Learn(older, sent, d.now)
	if !d.Refuse(request(c), d.now) {
		t.Error("an older reply ended a denial")
	}
	d.turn(time.Second)
	d.Learn(older, d.now, d.now)
	if d.Refuse(request(c), d.now) {
		t.Error("a reply to a later question is newer")
	}
}

func TestClearForgetsAll(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	late := request(charge("key", fixed, 1))
	late.Decisions = d.decide(late.Charges, false)
	sent := d.now
	d.turn(1)
	d.Clear(d.now)
	d.Learn(late, sent, d.now)
	if s := d.Stats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%+v, want nothing", s)
	}
}

func TestAnAnswerAllocatesNothing(t *testing.T) {
	d := newDesk(t)
	d.spent(fixed, 1)
	known, other := request(charge("key", fixed, 1)), request(charge("other", fixed, 1))
	n := testing.AllocsPerRun(1000, func() {
		d.Refuse(known, d.now)
		d.Refuse(other, d.now)
		d.Known(other, d.now, false)
	})
	if n > 0 || !known.Decisions[0].Cached {
		t.Errorf("%v allocations, decision %+v", n, known.Decisions[0])
	}
}
