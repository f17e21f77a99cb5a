package leases

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// desk is Leases with a clock that a test turns. Its store grants all that is asked for.
type desk struct {
	*testing.T
	*Leases
	now   time.Time
	grant func(*limit.Request) limit.Decision
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, Leases: New(func(string) int { return 2 }), now: time.Now().Add(time.Second)}
	d.grant = func(r *limit.Request) limit.Decision {
		return limit.Decision{
			Outcome: limit.Allowed, Charged: r.Charges[0].Cost, Remaining: 50, At: 1000,
			Wait: 150 * time.Millisecond, ResetAfter: time.Second,
		}
	}
	return d
}

func charge(key string, l limit.Limit, cost int64) limit.Charge {
	return limit.Charge{Key: key, Limit: l, Cost: cost, Lease: 1000, Share: "shop"}
}

func request(charges ...limit.Charge) *limit.Request {
	return &limit.Request{Charges: charges, Decisions: make([]limit.Decision, len(charges))}
}

var perSecond = bucket(100, 100)

func (d *desk) turn(by time.Duration)        { d.now = d.now.Add(by) }
func (d *desk) spend(c ...limit.Charge) bool { return d.Spend(request(c...), d.now) }

// ask asks the store, which replies at once, and returns what went beside it.
func (d *desk) ask(c ...limit.Charge) (before, after []*limit.Request) {
	r := request(c...)
	before, after = d.Around(r, d.now)
	for _, a := range after {
		a.Decisions[0] = d.grant(a)
		d.Granted(a, d.now)
	}
	for i := range r.Decisions {
		r.Decisions[i] = limit.Decision{Outcome: limit.Allowed, Charged: c[i].Cost}
	}
	d.Learn(r, d.now)
	return before, after
}

// warm asks until the next request lends.
func (d *desk) warm(c ...limit.Charge) {
	for range hotFrom - 1 {
		d.ask(c...)
	}
}

// want compares requests of leases, as operation and tokens.
func (d *desk) want(what string, got []*limit.Request, want ...string) {
	d.Helper()
	var all []string
	for _, r := range got {
		name := [...]string{limit.Refund: "refund", limit.Lend: "lend", limit.Spent: "spent", "returned"}
		all = append(all, fmt.Sprint(name[r.Charges[0].Op], " ", r.Charges[0].Cost))
	}
	if !slices.Equal(all, want) {
		d.Errorf("%s: %v, want %v", what, all, want)
	}
}

func TestTheFourthDecisionLends(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 3)
	for range hotFrom - 1 {
		_, after := d.ask(c)
		d.want("a cold counter", after)
	}
	_, after := d.ask(c)
	d.want("the fourth", after, "lend 12")
	lend := after[0].Charges[0]
	if lend.Parts != 8 || lend.Key != "key" || lend.Limit != perSecond {
		t.Errorf("%+v, want a quarter for each of two sidecars", lend)
	}
}

func TestAColdCounterIsNotLeased(t *testing.T) {
	d := newDesk(t)
	for range 20 {
		_, after := d.ask(charge("key", perSecond, 1))
		d.want("one in 50 ms", after)
		d.turn(50 * time.Millisecond)
	}
}

func TestALeaseDecidesUntilItIsSpent(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 3)
	d.warm(c)
	d.ask(c)
	d.turn(10 * time.Millisecond)
	for i := range int64(4) {
		r := request(c)
		want := limit.Decision{
			Outcome: limit.Allowed, Held: true, Charged: 3, Remaining: 59 - 3*i, At: 11_000,
			ResetAfter: 990 * time.Millisecond,
		}
		if !d.Spend(r, d.now) || r.Decisions[0] != want {
			t.Fatalf("%+v, want %+v", r.Decisions[0], want)
		}
	}
	if d.spend(c) {
		t.Fatal("more was spent than is held")
	}
	before, after := d.ask(c)
	d.want("in front of the next", before, "spent 12")
	d.want("behind it", after, "lend 25")
}

// TestWhatIsLeftGoesBackInFront: the store decides with all tokens that it can have, and lends again behind that.
func TestWhatIsLeftGoesBackInFront(t *testing.T) {
	for name, c := range map[string]struct {
		limit  limit.Limit
		before []string
	}{
		"bucket": {perSecond, []string{"spent 9", "returned 3"}},
		"window": {window(limit.FixedWindow, 100), []string{"refund 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, hot := newDesk(t), charge("key", c.limit, 3)
			d.warm(hot)
			d.ask(hot)
			for range 3 {
				d.spend(hot)
			}
			large := charge("key", c.limit, 5)
			before, after := d.ask(large)
			d.want("in front", before, c.before...)
			d.want("behind", after, "lend 26")
			if until := before[len(before)-1].Charges[0].Until; until != 1000+150_000 {
				t.Errorf("it ends at %d, want the end of the lease", until)
			}
		})
	}
}

// TestMixedRequestsLendSeldom: of a counter that is asked about beside others each time, hardly anything is lent.
func TestMixedRequestsLendSeldom(t *testing.T) {
	d, hot := newDesk(t), charge("key", perSecond, 1)
	cold := limit.Charge{Key: "cold", Limit: perSecond, Cost: 1}
	for range 1000 {
		if d.spend(hot, cold) {
			t.Fatal("a charge that is not leased was decided")
		}
		d.ask(hot, cold)
		d.turn(time.Millisecond)
	}
	if asks := d.Stats().Asks; asks < 2 || asks > 15 {
		t.Errorf("it was lent %d times in a second", asks)
	}
}

func TestAllOrNothing(t *testing.T) {
	d, a, b := newDesk(t), charge("a", perSecond, 1), charge("b", perSecond, 1)
	d.warm(a, b)
	d.ask(a, b)
	for !d.spend(a, a, b) { // shares a counter
		t.Fatal("all is held")
	}
	for d.spend(b) {
	}
	if d.spend(a, b) {
		t.Fatal("decided without tokens")
	}
	if !d.spend(a, a) || d.spend(a) {
		t.Error("two of a are left, also after a request that was not decided")
	}
}

func TestWhatIsNotLeased(t *testing.T) {
	for name, change := range map[string]func(*limit.Charge){
		"no lease":  func(c *limit.Charge) { c.Lease = 0 },
		"shadow":    func(c *limit.Charge) { c.Mode = limit.Shadow },
		"quota":     func(c *limit.Charge) { c.Mode = limit.Quota },
		"peek":      func(c *limit.Charge) { c.Op = limit.Peek },
		"post-paid": func(c *limit.Charge) { c.Op = limit.Debit },
		"refund":    func(c *limit.Charge) { c.Op = limit.Refund },
		"throttle":  func(c *limit.Charge) { c.MaxWait = time.Second },
		"penalty":   func(c *limit.Charge) { c.Penalty = new(limit.Penalty) },
		"log":       func(c *limit.Charge) { c.Limit.Algorithm = limit.SlidingLog },
		"calendar": func(c *limit.Charge) {
			c.Limit = limit.Limit{Algorithm: limit.FixedWindow, Count: 9, Calendar: new(limit.Calendar)}
		},
		"nothing": func(c *limit.Charge) { c.Limit.Count = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			d, c := newDesk(t), charge("key", perSecond, 1)
			change(&c)
			for range 20 {
				_, after := d.ask(c)
				d.want("beside it", after)
			}
			if d.spend(c) {
				t.Error("it was decided")
			}
		})
	}
}

func TestTheLeaseOfARuleIsItsBound(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 3)
	c.Lease = 5
	d.warm(c)
	_, after := d.ask(c)
	d.want("beside it", after, "lend 5")
}

// TestADomainsPenaltyDoesNotPreventALease: whether the client is in a cool-down is asked once in 200 ms, and a
// cool-down that was seen here acts at once.
func TestADomainsPenaltyDoesNotPreventALease(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	gate := limit.Charge{Key: "gate", Limit: bucket(1, 0), Op: limit.Peek, PenaltyKey: "client"}
	gate.Penalty = new(limit.Penalty)
	d.grant = func(*limit.Request) limit.Decision {
		return limit.Decision{Outcome: limit.Allowed, Charged: 1000, Wait: time.Second}
	}
	d.warm(gate, c)
	d.ask(gate, c)
	for range 19 {
		if !d.spend(gate, c) {
			t.Fatal("it is leased")
		}
		d.turn(10 * time.Millisecond)
	}
	other := gate
	other.Key = "other gate"
	if d.spend(other, c) {
		t.Error("it is not known whether the other client is in a cool-down")
	}
	d.turn(10 * time.Millisecond)
	if d.spend(gate, c) {
		t.Error("a cool-down that began elsewhere acts after 200 ms")
	}
	d.ask(gate, c)
	r := request(gate)
	r.Charges[0].Op, r.Charges[0].Cost = limit.Spend, 1
	r.Decisions[0] = limit.Decision{Outcome: limit.Refused}
	d.Learn(r, d.now)
	if d.spend(gate, c) {
		t.Error("a refusal that was recorded may have begun a cool-down")
	}
}

// TestAFullPlaceIsKept: a counter whose place a hot one has is not leased, and that is counted.
func TestAFullPlaceIsKept(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	d.ask(c)
	for i := range 200_000 {
		if d.Stats().Drops > 0 {
			break
		}
		d.ask(charge(fmt.Sprint("other ", i), perSecond, 1))
	}
	if d.Stats().Drops == 0 || !d.spend(c) {
		t.Errorf("%+v, want a drop, and the first one leased", d.Stats())
	}
}

func TestALeasedDecisionAllocatesNothing(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.grant = func(*limit.Request) limit.Decision {
		return limit.Decision{Outcome: limit.Allowed, Charged: 1 << 40, Wait: time.Second}
	}
	d.warm(c)
	d.ask(c)
	r := request(c)
	if n := testing.AllocsPerRun(1000, func() { d.Spend(r, d.now) }); n > 0 || !r.Decisions[0].Held {
		t.Errorf("%v allocations, decision %+v", n, r.Decisions[0])
	}
}
