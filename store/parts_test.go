package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// startRing starts servers that know nothing of each other.
func startRing(t *testing.T, n int) (fleet.Servers, []*servers.Redis) {
	t.Helper()
	s := fleet.Servers{Kind: fleet.Ring}
	var all []*servers.Redis
	for range n {
		server := servers.StartRedis(t)
		s.Addresses = append(s.Addresses, server.Addr)
		all = append(all, server)
	}
	return s, all
}

// scattered is counters of all algorithms, each with a hash tag of its own.
type scattered struct {
	name   string
	limits []limit.Limit
}

func scatter(t *testing.T, n int, count int64) scattered {
	s := scattered{name: t.Name()}
	for i := range n {
		s.limits = append(s.limits, limit.Limit{Algorithm: limit.Algorithm(i%4 + 1), Count: count, Burst: count, Window: year})
	}
	return s
}

func (s scattered) charge(i int, cost int64) limit.Charge {
	return limit.Charge{Key: fmt.Sprintf("rl1:{%s|%d}:k", s.name, i), Limit: s.limits[i], Cost: cost}
}

// request is a random request of one to four charges: rules and trees, peeks, refunds, debits, shadows and quotas.
func (s scattered) request(rng *rand.Rand) []limit.Charge {
	var all []limit.Charge
	for range 1 + rng.IntN(4) {
		c := s.charge(rng.IntN(len(s.limits)), rng.Int64N(8))
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

// mixes tells whether a request gives to a counter that it also takes from, which is not as in one call where it is split. Behind the
// denial cache no counter may come twice: there, what a counter showed a moment ago is repeated.
func mixes(r *Redis, charges []limit.Charge) bool {
	for i, a := range charges {
		for j, b := range charges {
			if i != j && a.Key == b.Key && (a.Op == limit.Refund || r.denials != nil) {
				return true
			}
		}
	}
	return false
}

// walk makes the same random requests of a store and of the model, one after the other, and wants the same answers.
func walk(t *testing.T, r *Redis, seed uint64, steps int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	model, s := NewMemory(MemoryConfig{}), scatter(t, 16, 40)
	s.name = fmt.Sprint(s.name, seed)
	var refused int
	for step := range steps {
		if rng.IntN(40) == 0 {
			forgetBoth(t, r, model, s.charge(rng.IntN(16), 0).Key)
		}
		charges := s.request(rng)
		if mixes(r, charges) {
			continue
		}
		got, want := spend(r, charges...), spend(model, charges...)
		if limit.Refuses(charges, want) {
			refused++
		}
		for i := range charges {
			if !alike(got[i], want[i]) {
				t.Fatalf("step %d of seed %d, charge %d of %+v:\ngot  %+v\nwant %+v", step, seed, i, charges, got[i], want[i])
			}
		}
	}
	if refused < steps/10 || refused > steps*9/10 {
		t.Fatalf("%d of %d requests were refused: the walk does not go both ways", refused, steps)
	}
}

func forgetBoth(t *testing.T, a, b counter, key string) {
	t.Helper()
	for _, s := range []counter{a, b} {
		if err := s.Reset(context.Background(), []string{key}); err != nil {
			t.Fatalf("reset %s: %v", key, err)
		}
	}
}

// alike allows for the time between two decisions.
func alike(a, b limit.Decision) bool {
	near := func(a, b time.Duration) bool { return (a - b).Abs() < time.Minute }
	return a.Outcome == b.Outcome && a.Charged == b.Charged && a.Remaining == b.Remaining &&
		near(a.ResetAfter, b.ResetAfter) && near(a.RetryAfter, b.RetryAfter)
}

func TestASplitRequestIsAnsweredAsAWholeOne(t *testing.T) {
	ring, _ := startRing(t, 3)
	for name, entries := range map[string]int{"with denial cache": 0, "without denial cache": -1} {
		t.Run(name, func(t *testing.T) {
			r := openRedis(t, RedisConfig{Servers: ring, DenialEntries: entries})
			for seed := range uint64(3) {
				walk(t, r, seed, 2000)
			}
		})
	}
}

// jostle lets eight callers make random requests of two to four different counters. What is used in the end must be what admitted
// requests cost, and no more than the limit.
func jostle(t *testing.T, r *Redis, requests int) {
	t.Helper()
	s := scatter(t, 24, int64(requests)/4)
	used := make([]atomic.Int64, len(s.limits))
	var refused, partial atomic.Int64
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(caller)))
			for range requests / 8 {
				places := rng.Perm(len(s.limits))[:2+rng.IntN(3)]
				var charges []limit.Charge
				for _, i := range places {
					charges = append(charges, s.charge(i, 1+rng.Int64N(5)))
				}
				admitted, whole := admittedAll(charges, spend(r, charges...))
				switch {
				case !whole:
					partial.Add(1)
				case !admitted:
					refused.Add(1)
				default:
					for j, i := range places {
						used[i].Add(charges[j].Cost)
					}
				}
			}
		})
	}
	all.Wait()
	if partial.Load() > 0 || refused.Load() == 0 || refused.Load() == int64(requests) {
		t.Fatalf("%d requests in part, %d of %d refused; want none in part, and some refused", partial.Load(), refused.Load(), requests)
	}
	for i, l := range s.limits {
		left := usage(r, s.charge(i, 0)).Remaining
		if n := used[i].Load(); n > l.Count || left != l.Count-n {
			t.Errorf("counter %d (%v): %d left of %d, admitted requests cost %d", i, l.Algorithm, left, l.Count, n)
		}
	}
	if n := r.Stats().NotReturned; n > 0 {
		t.Errorf("%d tokens were not given back", n)
	}
}

func TestSplitRequestsAreChargedWholeOrNotAtAll(t *testing.T) {
	ring, _ := startRing(t, 3)
	jostle(t, openRedis(t, RedisConfig{Servers: ring}), 8000)
}

// TestAHurriedAnswerDoesNotWaitForWhatIsGivenBack: one shard refuses, the other takes its tokens back only after the answer.
func TestAHurriedAnswerDoesNotWaitForWhatIsGivenBack(t *testing.T) {
	near, far := servers.StartRedis(t), servers.StartRedis(t)
	ring := fleet.Servers{Kind: fleet.Ring, Addresses: []string{near.Addr, far.Addr}}
	var trips atomic.Int64 // to the far one: to see that it is there, for the charge, to give back
	answered := make(chan struct{})
	r := openRedis(t, RedisConfig{Servers: ring, DenialEntries: -1, OnTrip: func(_ context.Context, shard string, _ int) func(string) {
		if shard == far.Addr && trips.Add(1) == 3 {
			<-answered
		}
		return nil
	}})
	empty, full := onShard(t, r, near.Addr, bucket(0, year)), onShard(t, r, far.Addr, bucket(10, year))
	want(t, "the far one", spend(r, full)[0], limit.Allowed, 1, 9)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	decisions := make([]limit.Decision, 2)
	r.Spend(ctx, []limit.Charge{empty, full}, decisions) // if it waited for what is given back, it would never return
	close(answered)
	want(t, "the empty limit", decisions[0], limit.Refused, 0, 0)
	if decisions[1].Outcome != limit.Allowed || decisions[1].Charged != 0 {
		t.Errorf("the other limit: %+v, want allowed and nothing charged", decisions[1])
	}
	servers.Await(t, "the tokens to be given back", func() error {
		return notYet(usage(r, full).Remaining == 9)
	})
}

// onShard is a charge of 1 on a counter that lives on a shard of a ring.
func onShard(t *testing.T, r *Redis, name string, l limit.Limit) limit.Charge {
	t.Helper()
	for i := range 1000 {
		c := charge(t, fmt.Sprint("on ", name, " ", i), l, 1)
		if n, _ := r.place(&c); n.Name() == name {
			return c
		}
	}
	t.Fatalf("none of 1000 keys is on %s", name)
	return limit.Charge{}
}

// TestTheWavesOfASplitRequestShareItsPatience: refunds are asked for after the charges, in what those left of the time.
func TestTheWavesOfASplitRequestShareItsPatience(t *testing.T) {
	ring, _ := startRing(t, 2)
	var mu sync.Mutex
	var bounded []bool // by trip: the call has a deadline that its caller did not set
	r := openRedis(t, RedisConfig{Servers: ring, Patience: time.Hour, DenialEntries: -1, OnTrip: func(ctx context.Context, _ string, _ int) func(string) {
		mu.Lock()
		defer mu.Unlock()
		deadline, found := ctx.Deadline()
		bounded = append(bounded, found && time.Until(deadline) <= time.Hour*10/8)
		return nil
	}})
	charges := []limit.Charge{onShard(t, r, ring.Addresses[0], bucket(40, year)), onShard(t, r, ring.Addresses[1], bucket(40, year))}
	charges[1].Op = limit.Refund
	for _, d := range spend(r, charges...) {
		if d.Outcome != limit.Allowed {
			t.Fatalf("decided %+v, want all allowed", d)
		}
	}
	if !slices.Equal(bounded, []bool{false, true}) {
		t.Errorf("calls with a bound of their own: %v, want the second one alone", bounded)
	}
	if got := r.rest(time.Now().Add(-50 * time.Minute)); got > 12*time.Minute || got < 9*time.Minute {
		t.Errorf("%v are left of an hour after 50 minutes", got)
	}
	if got := r.rest(time.Now().Add(-2 * time.Hour)); got != 12*time.Minute {
		t.Errorf("%v are left after all is used up, want a fifth", got)
	}
}
