package engine_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// model is a rule of 1,000 tokens a minute that are paid afterwards.
func model(reserve int64) descriptors.Domain {
	rule := bucket("llm", descriptors.ScopeTenant, 1000)
	rule.PostPaid, rule.Reserve = true, reserve
	return ruled(rule)
}

// hits asks for a number of hits as Envoy does: 0 when a request comes, its cost when it is over.
func (b *bench) hits(n uint64) *engine.Verdict {
	b.t.Helper()
	req := asking([]string{"tenant", "acme"})
	req.Descriptors[0].Hits, req.Descriptors[0].HitsGiven = n, true
	return b.decide(req)
}

// overspend lets that many requests be under way at once, and returns how many pass and what the limit owes then, in
// time until full.
func (b *bench) overspend(atOnce int, cost uint64) (passed int, reset time.Duration) {
	for range atOnce {
		if !b.hits(0).Refused {
			passed++
		}
	}
	for range passed {
		want(b.t, "a cost", b.hits(cost), false)
	}
	return passed, b.hits(0).Decisions[0].ResetAfter
}

// TestPostPaidOverspend measures the bound: all that is under way when the balance ends is still charged, and the
// balance never falls below minus the count. With a reservation of the cost nothing is overspent.
func TestPostPaidOverspend(t *testing.T) {
	for _, c := range []struct {
		reserve     int64
		cost        uint64
		passed      int
		wantedReset time.Duration
	}{
		{0, 100, 40, 2 * time.Minute}, // 4,000 spent: 3,000 too many, of which 1,000 are owed and 2,000 forgotten
		{0, 30, 40, 72 * time.Second}, // 1,200 spent
		{100, 100, 10, time.Minute},   // exactly the limit
		{100, 130, 10, 78 * time.Second},
		{100, 60, 10, 42 * time.Second}, // 600 spent, and the last question reserves 100 more
		{50, 100, 20, 2 * time.Minute},
	} {
		b := newBench(t, nil, model(c.reserve))
		passed, reset := b.overspend(40, c.cost)
		if passed != c.passed || reset != c.wantedReset {
			t.Errorf("40 at once that cost %d, %d reserved: %d pass and the limit is full after %v, want %d and %v",
				c.cost, c.reserve, passed, reset, c.passed, c.wantedReset)
		}
	}
}

func TestACostWithoutAReservationIsChargedInFull(t *testing.T) {
	b := newBench(t, nil, model(400))
	charged := func(n uint64) int64 { return b.hits(n).Decisions[0].Charged }
	for _, step := range []struct {
		what string
		hits uint64
		want int64
	}{
		{"a reservation", 0, 400}, {"another", 0, 400}, {"one that does not fit", 0, 0},
		{"the cost of the first", 100, -300}, {"that of the second", 500, 100},
		{"one without a reservation, as after a refusal", 100, 100}, {"and again", 1, 1},
	} {
		if got := charged(step.hits); got != step.want {
			t.Errorf("%s takes %d, want %d", step.what, got, step.want)
		}
	}
}

// A reservation that time has given back is not given back again.
func TestAReservationEndsWithTheTimeThatGivesItBack(t *testing.T) {
	b := newBench(t, nil, model(400))
	b.hits(0)
	b.now = b.now.Add(23 * time.Second)
	if got := b.hits(0).Decisions[0]; got.Charged != 400 {
		t.Fatalf("the second reservation took %d", got.Charged)
	}
	b.now = b.now.Add(time.Minute)
	if got := b.hits(100).Decisions[0]; got.Charged != 100 || got.Outcome != limit.Allowed {
		t.Errorf("a cost long after its reservation takes %d, want all of its 100", got.Charged)
	}
}

// A reservation that was made under other rules is settled by what it took.
func TestAReservationOutlivesAChangeOfTheRules(t *testing.T) {
	b := newBench(t, nil, model(100))
	for range 5 {
		want(t, "a request", b.hits(0), false) // takes 100 each
	}
	b.Use(compile(t, model(400)))
	taken := int64(500)
	for range 5 {
		taken += b.hits(150).Decisions[0].Charged
	}
	if taken != 750 {
		t.Errorf("five requests that cost 150 each were charged %d in all, want 750", taken)
	}
}

func TestAReservedTreeRefusesWithoutTakingWhatIsLeft(t *testing.T) {
	llm := descriptors.Node{Key: "tenant", PostPaid: true, Reserve: 400, Limits: bucket("", 0, 1000).Limits}
	llm.Limits[0].Unit, llm.Limits[0].Multiplier = descriptors.Minute, 1
	b := newBench(t, nil, tree(llm))
	for _, refused := range []bool{false, false, true, true} {
		want(t, "a reservation", b.hits(0), refused)
	}
	if got := b.hits(300).Decisions[0]; got.Charged != -100 || got.Remaining != 300 {
		t.Errorf("settling 300 of 400 takes %d and leaves %d, want -100 and 300", got.Charged, got.Remaining)
	}
}
