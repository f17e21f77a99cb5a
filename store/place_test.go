package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/servers"
)

// startRing starts servers that know nothing of each other.
func startRing(t *testing.T, n int) (all []*servers.Redis) {
	t.Helper()
	for range n {
		all = append(all, servers.StartRedis(t))
	}
	return all
}

// scattered is a charge on one of many counters of all algorithms, each with a hash tag of its own.
func scattered(t *testing.T, i int, count, cost int64) limit.Charge {
	l := limit.Limit{Algorithm: limit.Algorithm(i%4 + 1), Count: count, Burst: count, Window: year}
	return charge(t, fmt.Sprint(i), l, cost)
}

// scatteredRequest is a random request of one to four different counters: rules and trees, peeks, refunds, debits,
// shadows and quotas.
func scatteredRequest(t *testing.T, rng *rand.Rand) (all []limit.Charge) {
	for _, i := range rng.Perm(16)[:1+rng.IntN(4)] {
		c := scattered(t, i, int64(i*3), 1+rng.Int64N(7))
		c.Each = rng.IntN(4) == 0
		c.Mode = []limit.Mode{limit.Enforced, limit.Enforced, limit.Enforced, limit.Shadow, limit.Quota}[rng.IntN(5)]
		switch rng.IntN(12) {
		case 0:
			c.Op = limit.Peek
		case 1, 2:
			c.Op = limit.Refund
		case 3:
			if c.Limit.Algorithm == limit.TokenBucket {
				c.Op = limit.Debit
			}
		}
		all = append(all, c)
	}
	return all
}

// walk makes the same random requests of a store and of the model, one after the other, and wants the same answers.
func walk(t *testing.T, s Counter) {
	t.Helper()
	const steps = 1000
	rng, model, refused := rand.New(rand.NewPCG(1, 1)), memory.New(memory.Config{}), 0
	for step := range steps {
		if rng.IntN(40) == 0 {
			key := scattered(t, rng.IntN(16), 0, 0).Key
			for _, store := range []Counter{s, model} {
				err := store.Reset(t.Context(), []string{key})
				if err != nil {
					t.Fatalf("reset %s: %v", key, err)
				}
			}
		}
		charges := scatteredRequest(t, rng)
		got, want := spend(s, charges...), spend(model, charges...)
		if limit.Refuses(charges, want) {
			refused++
		}
		for i := range charges {
			if !same(got[i], want[i]) {
				t.Fatalf("step %d, charge %d of %+v:\ngot  %+v\nwant %+v", step, i, charges, got[i], want[i])
			}
		}
	}
	if refused < steps/10 || refused > steps*9/10 {
		t.Fatalf("%d of %d requests were refused: the walk does not go both ways", refused, steps)
	}
}

// same allows for the time between two decisions.
func same(a, b limit.Decision) bool {
	near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Minute }
	return a.Outcome == b.Outcome && a.Charged == b.Charged && a.Remaining == b.Remaining &&
		near(a.ResetAfter, b.ResetAfter) && near(a.RetryAfter, b.RetryAfter)
}

// jostle lets eight callers make random requests of two to four different counters. What is used in the end must be
// what admitted requests cost, and no more than the limit.
func jostle(t *testing.T, r *Redis, requests int) {
	t.Helper()
	count, used := int64(requests)/4, make([]atomic.Int64, 24)
	var refused, partial atomic.Int64
	crowd(requests, func(i int) {
		rng := rand.New(rand.NewPCG(7, uint64(i)))
		places := rng.Perm(len(used))[:2+rng.IntN(3)]
		var charges []limit.Charge
		for _, place := range places {
			charges = append(charges, scattered(t, place, count, 1+rng.Int64N(5)))
		}
		decisions := spend(r, charges...)
		refuses := limit.Refuses(charges, decisions)
		if refuses {
			refused.Add(1)
		}
		for j, d := range decisions {
			used[places[j]].Add(d.Charged)
			if d.Outcome == limit.Undecided || refuses == (d.Charged != 0) {
				partial.Add(1)
			}
		}
	})
	if partial.Load() > 0 || refused.Load() == 0 || refused.Load() == int64(requests) {
		t.Fatalf("%d requests in part and %d of %d refused, want none and some", partial.Load(), refused.Load(),
			requests)
	}
	for i := range used {
		left := peek(r, scattered(t, i, count, 0)).Remaining
		if n := used[i].Load(); n > count || left != count-n {
			t.Errorf("counter %d: %d left of %d, admitted requests cost %d", i, left, count, n)
		}
	}
	if n := r.Stats().Calls.NotReturned; n > 0 {
		t.Errorf("%d tokens were not given back", n)
	}
}

func TestSplitRequestsAreChargedWholeOrNotAtAll(t *testing.T) {
	jostle(t, open(t, RedisConfig{Main: ring(startRing(t, 3)...)}), 4000)
}

// on is a charge of 1 on a counter that lives on a server of a ring.
func on(t *testing.T, r *Redis, server *servers.Redis, l limit.Limit) limit.Charge {
	t.Helper()
	for i := range 1000 {
		c := charge(t, fmt.Sprint("on ", server.Addr, " ", i), l, 1)
		if r.homeOf(&c).server.Name() == server.Addr {
			return c
		}
	}
	t.Fatalf("none of 1000 keys is on %s", server.Addr)
	return limit.Charge{}
}

// TestAnAnswerDoesNotWaitForWhatIsGivenBack: one server refuses, the other one hangs while its tokens are given back.
func TestAnAnswerDoesNotWaitForWhatIsGivenBack(t *testing.T) {
	all := startRing(t, 2)
	near, far := all[0], all[1]
	var trips atomic.Int64 // to the far one: for the charge, to give back
	hang := func(_ context.Context, server string, _ int) func(string) {
		if server == far.Addr && trips.Add(1) == 2 {
			far.Hang(t)
		}
		return nil
	}
	r := open(t, RedisConfig{Main: ring(near, far), DenialEntries: -1, OnTrip: hang})
	empty, full := on(t, r, near, bucket(0, year)), on(t, r, far, bucket(10, year))
	request := requestOf(empty, full)
	request.Due = time.Now().Add(time.Second)
	r.Ask(t.Context(), request)
	want(t, "the empty limit", request.Decisions[0], limit.Refused, 0, 0)
	if d := request.Decisions[1]; d.Outcome != limit.Allowed || d.Charged != 0 {
		t.Errorf("the other limit: %+v, want allowed and nothing charged", d)
	}
	wake(t, far)
	servers.Await(t, "the tokens that are given back", func() error { return notYet(peek(r, full).Remaining == 10) })
}

// TestRefundsOfASplitRequestGoLast: one that is refused elsewhere gives nothing back.
func TestRefundsOfASplitRequestGoLast(t *testing.T) {
	all := startRing(t, 2)
	r := open(t, RedisConfig{Main: ring(all...), DenialEntries: -1})
	rule, refund := on(t, r, all[0], bucket(1, year)), on(t, r, all[1], bucket(10, year))
	refund.Cost = 5
	spend(r, refund)
	refund = op(refund, limit.Refund)
	want(t, "the refund of an admitted request", spend(r, rule, refund)[1], limit.Allowed, -5, 10)
	spend(r, op(refund, limit.Spend))
	want(t, "the refund of a refused request", spend(r, rule, refund)[1], limit.Allowed, 0, 5)
	wantLeft(t, r, refund, 5)
}

// tree is n charges as descriptors of a tree make them, each on a counter of its own.
func tree(t *testing.T, n int, l limit.Limit) (all []limit.Charge) {
	for i := range n {
		all = append(all, each(charge(t, fmt.Sprint("tree ", i), l, 1)))
	}
	return all
}

// TestManyChargesGoInSeveralCalls: none has more charges than one may, each counter is charged once, and the rule of
// the request is charged unless a tree refuses.
func TestManyChargesGoInSeveralCalls(t *testing.T) {
	all := startRing(t, 2)
	for name, main := range map[string]*redis.Client{"one server": at(all[0].Addr), "a ring": ring(all...)} {
		t.Run(name, func(t *testing.T) {
			var seen []int // how many charges each trip had
			r := open(t, RedisConfig{Main: main, OnTrip: func(_ context.Context, _ string, charges int) func(string) {
				seen = append(seen, charges)
				return nil
			}})
			rule := charge(t, "rule", bucket(5, year), 1)
			charges := append([]limit.Charge{rule}, tree(t, 1000, bucket(1, year))...)
			for i, d := range spend(r, charges...) {
				if d.Outcome != limit.Allowed || d.Charged != 1 {
					t.Fatalf("charge %d: %+v, want one token taken", i, d)
				}
			}
			r.Forget()
			for i, d := range spend(r, charges...)[1:] {
				if d.Outcome != limit.Refused {
					t.Fatalf("tree %d: %+v, want it spent", i, d)
				}
			}
			wantLeft(t, r, rule, 4)
			if most := slices.Max(seen); most > limit.MaxTogether || len(seen) < 2*1001/limit.MaxTogether {
				t.Errorf("%d trips with up to %d charges, want at most %d in each", len(seen), most, limit.MaxTogether)
			}
		})
	}
}

// TestManyQuotasRefuseOnlyTogether: quotas in several trips are one request.
func TestManyQuotasRefuseOnlyTogether(t *testing.T) {
	r := open(t, RedisConfig{Main: at(servers.StartRedis(t).Addr), DenialEntries: -1})
	all := tree(t, 300, bucket(1, year))
	for i := range all {
		all[i].Mode = limit.Quota
	}
	rule := charge(t, "rule", bucket(5, year), 1)
	spend(r, all[1:]...)
	spend(r, append(all, rule)...) // the first has room
	wantLeft(t, r, rule, 4)
	spend(r, append(all, rule)...) // none has room
	wantLeft(t, r, rule, 4)
}

func TestLimitsPerSecondLiveOnTheSecondServer(t *testing.T) {
	main, second := servers.StartRedis(t), servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(main.Addr), PerSecond: at(second.Addr)})
	// Buckets of up to a second that take hours to fill, so that they are there when the test looks.
	slow := func(window time.Duration) limit.Limit {
		return limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Burst: 100_000, Window: window}
	}
	second1, long := charge(t, "second", slow(time.Second), 20_000), charge(t, "long", slow(1001*time.Millisecond),
		20_000)
	for _, d := range spend(r, second1, long) {
		if d.Outcome != limit.Allowed || d.Charged == 0 {
			t.Fatalf("decision %+v while both have room", d)
		}
	}
	wantKeys(t, second, second1.Key)
	wantKeys(t, main, long.Key)
	long.Cost = 90_000
	d := spend(r, second1, long)[0]
	if d.Outcome != limit.Allowed || d.Charged != 0 || d.Remaining < 80_000 || d.Remaining > 80_100 {
		t.Errorf("the short limit, of a request that the long one refuses: %+v, want 80,000 left", d)
	}
}

// wantKeys fails the test unless a server holds these keys.
func wantKeys(t *testing.T, server *servers.Redis, keys ...string) {
	t.Helper()
	var got []string
	for _, key := range server.Do(t, "KEYS", "*").([]any) {
		got = append(got, fmt.Sprint(key))
	}
	slices.Sort(got)
	slices.Sort(keys)
	if !slices.Equal(got, keys) {
		t.Errorf("%s has %q, want %q", server.Addr, got, keys)
	}
}

// TestALostShardKeepsItsKeys: they are undecided and go to no other server, where they would have a fresh limit.
func TestALostShardKeepsItsKeys(t *testing.T) {
	all := startRing(t, 2)
	r := open(t, RedisConfig{Main: ring(all...), DenialEntries: -1})
	lost, other := on(t, r, all[0], bucket(1000, year)), on(t, r, all[1], bucket(1000, year))
	all[0].Kill(t)
	for i := range int64(20) {
		d := spend(r, lost, other)
		if d[0].Outcome != limit.Undecided {
			t.Fatalf("the lost limit: %+v, want undecided", d[0])
		}
		want(t, "the other limit", d[1], limit.Allowed, 1, 999-i)
	}
	wantKeys(t, all[1], other.Key)
	if got, want := r.Ping(t.Context()), all[0].Addr+" "+redis.ReasonDial; got != want {
		t.Errorf("ping is %q, want %q", got, want)
	}
	all[0].Start(t)
	awaitAllowed(t, r, lost)
}
