package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// watched is a Redis with a denial cache on a clock of the test, and an eye on its server.
func watched(t *testing.T, c RedisConfig) (*Redis, eye, *hand) {
	t.Helper()
	server := servers.StartRedis(t)
	clock := newHand()
	c.Addresses, c.Now = []string{server.Addr}, clock.Now
	return openRedis(t, c), look(t, server, redis.Options{}), clock
}

// wantCalls fails the test unless the actions cost the server this many calls of the script.
func wantCalls(t *testing.T, e eye, what string, calls int64, actions func()) {
	t.Helper()
	before := e.calls("evalsha") + e.calls("eval")
	actions()
	if n := e.calls("evalsha") + e.calls("eval") - before; n != calls {
		t.Fatalf("%s: %d calls of the script, want %d", what, n, calls)
	}
}

func TestFloodOnASpentKeyCostsRedisNothing(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		wide := l
		wide.Count, wide.Burst = 100, 100
		requests := map[string][]limit.Charge{
			"one rule":     {charge(t, "rule", l, 1)},
			"one tree":     {each(charge(t, "tree", l, 1))},
			"shadow":       {with(charge(t, "shadow", l, 1), limit.Shadow)},
			"several":      {charge(t, "user", l, 1), charge(t, "tenant", wide, 1), charge(t, "global", wide, 1)},
			"spent twice":  {charge(t, "both", l, 1), charge(t, "both too", l, 1)},
			"tree and all": {each(charge(t, "leaf", l, 1)), charge(t, "beside", wide, 1)},
		}
		for name, request := range requests {
			for range 6 {
				spend(r, request...)
			}
			wantCalls(t, e, "1000 refusals of "+name, 0, func() {
				for range 1000 {
					want(t, name, spend(r, request...)[0], limit.Refused, 0, 0)
				}
			})
		}
	})
	if s := r.Stats(); s.DenialHits < 24_000 || s.DenialEntries == 0 {
		t.Fatalf("stats %+v, want at least 24,000 denial hits and some entries", s)
	}
}

// TestCachedDenialSaysWhatRedisWould compares a store with the cache to one without, at every step of time and cost.
func TestCachedDenialSaysWhatRedisWould(t *testing.T) {
	server := servers.StartRedis(t)
	cached := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	plain := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, DenialEntries: -1})
	eachAlgorithm(t, 10, year, func(t *testing.T, l limit.Limit) {
		spend(cached, charge(t, "k", l, 8))
		for cost := int64(3); cost <= 12; cost++ {
			spend(cached, charge(t, "k", l, cost))
			got, exact := spend(cached, charge(t, "k", l, cost))[0], spend(plain, charge(t, "k", l, cost))[0]
			want(t, fmt.Sprintf("cost %d", cost), got, exact.Outcome, 0, exact.Remaining)
			near(t, fmt.Sprintf("retry after of cost %d", cost), got.RetryAfter, exact.RetryAfter)
			near(t, fmt.Sprintf("reset after of cost %d", cost), got.ResetAfter, exact.ResetAfter)
		}
	})
	if cached.Stats().DenialHits == 0 {
		t.Fatalf("the cache answered nothing")
	}
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if diff := got - want; diff.Abs() > time.Minute { // time passes between two questions
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

func TestCachedDenialKnowsCosts(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	eachAlgorithm(t, 10, year, func(t *testing.T, l limit.Limit) {
		spend(r, charge(t, "k", l, 7))
		spend(r, charge(t, "k", l, 4))
		wantCalls(t, e, "the same cost again", 0, func() {
			want(t, "cost 4", spend(r, charge(t, "k", l, 4))[0], limit.Refused, 0, 3)
		})
		wantCalls(t, e, "a cost that fits", 1, func() {
			want(t, "cost 1", spend(r, charge(t, "k", l, 1))[0], limit.Allowed, 1, 2)
		})
		want(t, "cost 4 of 2", spend(r, charge(t, "k", l, 4))[0], limit.Refused, 0, 2)
		wantCalls(t, e, "a tree takes what is left", 1, func() {
			want(t, "cost 4", spend(r, each(charge(t, "k", l, 4)))[0], limit.Refused, 2, 0)
		})
	})
}

func TestCachedDenialFollowsTheLimit(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		spend(r, charge(t, "k", l, 5))
		spend(r, charge(t, "k", l, 1))
		l.Count, l.Burst = 50, 50
		wantCalls(t, e, "under a raised limit", 1, func() {
			if d := spend(r, charge(t, "k", l, 1))[0]; d.Outcome != limit.Allowed {
				t.Fatalf("decision %+v, want allowed", d)
			}
		})
	})
}

func TestWhatGivesBackEndsADenial(t *testing.T) {
	refund := func(op limit.Op) func(r *Redis, c limit.Charge) {
		return func(r *Redis, c limit.Charge) {
			c.Op = op
			spend(r, c)
		}
	}
	for name, end := range map[string]func(r *Redis, c limit.Charge){
		"refund": refund(limit.Refund),
		"debit":  refund(limit.Debit),
		"reset":  func(r *Redis, c limit.Charge) { r.Reset(context.Background(), []string{c.Key}) },
		"rules":  func(r *Redis, _ limit.Charge) { r.Forget() },
	} {
		t.Run(name, func(t *testing.T) {
			r, e, _ := watched(t, RedisConfig{})
			c := charge(t, "k", bucket(2, year), 1)
			for range 3 {
				spend(r, c)
			}
			if n := r.Stats().DenialEntries; n != 1 {
				t.Fatalf("%d entries after a denial, want 1", n)
			}
			end(r, c)
			if n := r.Stats().DenialEntries; n != 0 {
				t.Fatalf("%d entries afterwards, want 0", n)
			}
			wantCalls(t, e, "the next charge", 1, func() { spend(r, c) })
		})
	}
}

func TestSiblingsOfADeniedCharge(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	l := bucket(10, year)
	spent, rule, tree := charge(t, "spent", l, 1), charge(t, "rule", l, 1), each(charge(t, "tree", l, 1))
	spend(r, charge(t, "spent", l, 10))
	spend(r, spent)
	wantCalls(t, e, "a sibling that was not seen yet rides along", 1, func() {
		want(t, "rule", spend(r, spent, rule)[1], limit.Allowed, 0, 10)
	})
	wantCalls(t, e, "a sibling just seen", 0, func() {
		want(t, "rule", spend(r, spent, rule)[1], limit.Allowed, 0, 10)
	})
	wantCalls(t, e, "a tree counts each time", 2, func() {
		want(t, "tree", spend(r, spent, rule, tree)[2], limit.Allowed, 1, 9)
		want(t, "tree", spend(r, spent, rule, tree)[2], limit.Allowed, 1, 8)
	})
	clock.Turn(2 * time.Second)
	wantCalls(t, e, "a sibling seen long ago", 1, func() {
		want(t, "rule", spend(r, spent, rule)[1], limit.Allowed, 0, 10)
	})
	wantCalls(t, e, "a sibling whose cost may not fit", 1, func() {
		d := spend(r, spent, charge(t, "rule", l, 11))
		want(t, "rule", d[1], limit.Refused, 0, 10)
	})
	wantLeft(t, r, rule, 10)
}

func TestSiblingSeenLongAgoIsAskedThoughItsDenialLasts(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	l := bucket(10, year)
	spent, rule := charge(t, "spent", l, 1), charge(t, "rule", l, 1)
	spend(r, charge(t, "spent", l, 10))
	spend(r, charge(t, "rule", l, 5))
	spend(r, charge(t, "rule", l, 6))
	spend(r, spent, rule)
	clock.Turn(2 * time.Second)
	wantCalls(t, e, "a sibling seen long ago", 1, func() {
		want(t, "rule", spend(r, spent, rule)[1], limit.Allowed, 0, 5)
	})
}

func TestKnownShadowRefusalLeavesTheRequestToRedis(t *testing.T) {
	r, e, _ := watched(t, RedisConfig{})
	l := bucket(3, year)
	for _, mode := range []limit.Mode{limit.Shadow, limit.Quota} {
		quiet := with(charge(t, fmt.Sprint("quiet", mode), l, 1), mode)
		rule := charge(t, fmt.Sprint("rule", mode), bucket(10, year), 1)
		spend(r, with(charge(t, fmt.Sprint("quiet", mode), l, 3), mode))
		spend(r, quiet)
		other := with(charge(t, fmt.Sprint("other", mode), bucket(10, year), 1), mode)
		wantCalls(t, e, "a request whose shadow or quota is spent", 1, func() {
			want(t, "rule", spend(r, quiet, other, rule)[2], limit.Allowed, 1, 9)
		})
	}
}

func TestDenialsAreBounded(t *testing.T) {
	r, _, _ := watched(t, RedisConfig{DenialEntries: 128})
	l := bucket(1, year)
	for i := range 1000 {
		spend(r, charge(t, fmt.Sprint(i), l, 2))
	}
	if s := r.Stats(); s.DenialEntries > 128 || s.DenialEntries < 64 || s.DenialDrops != 1000-s.DenialEntries {
		t.Fatalf("stats %+v, want at most 128 entries and every other one counted as dropped", s)
	}
}

// TestAnswerFromBeforeARefundIsNotRemembered: a refusal that was on its way while a refund came through is old news.
func TestAnswerFromBeforeARefundIsNotRemembered(t *testing.T) {
	clock := newHand()
	d := newDenials(100, 0, clock.Now)
	c := charge(t, "k", bucket(2, year), 1)
	late := &trip{charges: []limit.Charge{c}, decisions: []limit.Decision{{Outcome: limit.Refused, RetryAfter: time.Hour}}}
	late.states, late.sent = make([]limit.State, 1), clock.Now()
	d.note(late, late.charges)
	d.forget(c.Key)
	d.learn(late, late.charges, late.decisions, true, false)
	if n := d.entries.Load(); n != 0 {
		t.Fatalf("%d entries, want none", n)
	}
	d.note(late, late.charges)
	d.learn(late, late.charges, late.decisions, true, false)
	if n := d.entries.Load(); n != 1 {
		t.Fatalf("%d entries after an answer without a refund between, want 1", n)
	}
}

func TestYoungerAnswerStays(t *testing.T) {
	clock := newHand()
	d := newDenials(100, 0, clock.Now)
	c := charge(t, "k", bucket(2, year), 1)
	for _, sent := range []time.Duration{2 * time.Second, time.Second} {
		a := answer{charge: &c, decision: &limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour}, state: &limit.State{}}
		a.sent, a.server = sent, int64(sent)
		d.remember(a)
	}
	if m := d.shard(c.Key).memos[c.Key]; m.sent != 2*time.Second {
		t.Fatalf("the answer sent at %v is remembered, want the one sent at 2s", m.sent)
	}
}

// TestRefusalFromBeforeASpendIsNotRemembered: a refusal that the server gave before it admitted another charge has old
// numbers, though it arrives later.
func TestRefusalFromBeforeASpendIsNotRemembered(t *testing.T) {
	clock := newHand()
	d := newDenials(100, 0, clock.Now)
	c := charge(t, "k", bucket(20, year), 15)
	refused := answer{charge: &c, decision: &limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour}, state: &limit.State{}}
	for _, a := range []struct {
		server  int64
		charged int64
	}{{server: 1}, {server: 3, charged: 6}, {server: 2}} {
		refused.server = a.server
		refused.decision = &limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour}
		if a.charged > 0 {
			refused.decision = &limit.Decision{Outcome: limit.Allowed, Charged: a.charged}
		}
		d.remember(refused)
	}
	if m := d.shard(c.Key).memos[c.Key]; m.denied {
		t.Fatal("the refusal of moment 2 is remembered after the spend of moment 3")
	}
}

// TestSlidingLogForgetsCostsThatFitAgain: a refused cost is no longer one once a later answer says that more is left.
func TestSlidingLogForgetsCostsThatFitAgain(t *testing.T) {
	clock := newHand()
	d := newDenials(100, 0, clock.Now)
	log := limit.Limit{Algorithm: limit.SlidingLog, Count: 5, Window: time.Hour}
	for i, a := range []struct{ cost, remaining int64 }{{1, 0}, {3, 1}} {
		c := charge(t, "k", log, a.cost)
		d.remember(answer{
			charge: &c, state: &limit.State{}, server: int64(i + 1),
			decision: &limit.Decision{Outcome: limit.Refused, Remaining: a.remaining, RetryAfter: time.Minute, ResetAfter: time.Minute},
		})
	}
	one, three := charge(t, "k", log, 1), charge(t, "k", log, 3)
	memo := d.shard(one.Key).memos[one.Key].log
	var decision limit.Decision
	if memo.refuses(&one, d.clock(), &decision) != nil {
		t.Fatal("a cost of 1 is refused from memory though 1 is left")
	}
	if memo.refuses(&three, d.clock(), &decision) == nil {
		t.Fatal("a cost of 3 is not refused from memory though it was refused last")
	}
}

func TestLocalRefusalAllocatesNothing(t *testing.T) {
	r, _, _ := watched(t, RedisConfig{})
	charges := []limit.Charge{charge(t, "k", bucket(1, year), 1)}
	decisions := make([]limit.Decision, 1)
	for range 2 {
		r.Spend(context.Background(), charges, decisions)
	}
	got := testing.AllocsPerRun(1000, func() { r.Spend(context.Background(), charges, decisions) })
	if got > poolAllocs {
		t.Fatalf("%v allocations, want %d", got, poolAllocs)
	}
}

// TestALateRefusalThatTookSomethingEndsADenial: what it left is less than what is known, though it is too late to be remembered.
func TestALateRefusalThatTookSomethingEndsADenial(t *testing.T) {
	d := newDenials(100, 0, time.Now)
	c := each(charge(t, "k", bucket(10, year), 5))
	refused := limit.Decision{Outcome: limit.Refused, Remaining: 3, RetryAfter: time.Hour}
	d.remember(answer{charge: &c, decision: &refused, state: &limit.State{At: 1, Used: 7}, server: 1, sent: 1, mark: d.mark(c.Key), refused: true})
	if d.entries.Load() != 1 {
		t.Fatalf("%d denials are known, want 1", d.entries.Load())
	}
	mark := d.mark(c.Key)
	d.shard(c.Key).mark++ // a refund came in between
	took := limit.Decision{Outcome: limit.Refused, Charged: 3, RetryAfter: time.Hour}
	d.remember(answer{charge: &c, decision: &took, state: &limit.State{At: 1, Used: 10}, server: 2, sent: 2, mark: mark, refused: true})
	if d.entries.Load() != 0 {
		t.Error("a denial that shows 3 left stays known after they were taken")
	}
}
