package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// throttled is a domain that lets one request per user and window through and holds others up to longest.
func throttled(window, longest time.Duration) descriptors.Domain {
	r := bucket("lane", descriptors.ScopeUser, 1)
	r.Limits[0].Window = window
	r.Action, r.MaxDelay = descriptors.Throttle, longest
	return descriptors.Domain{Name: "d", Rules: []descriptors.Rule{r}}
}

// throttling is an engine on the clock of a synctest bubble, with a token per user and second.
func throttling(t *testing.T, waiters int, longest time.Duration) (*engine.Engine, *memory.Memory) {
	t.Helper()
	return throttlingBy(t, waiters, throttled(time.Second, longest))
}

func throttlingBy(t *testing.T, waiters int, domain descriptors.Domain) (*engine.Engine, *memory.Memory) {
	t.Helper()
	counts := memory.New(memory.Config{})
	e := engine.New(engine.Config{Store: counts, Waiters: waiters})
	e.Use(compile(t, domain))
	return e, counts
}

// slowly is a way on which every question takes so long.
func slowly(took time.Duration) func(limit.Charge) time.Duration {
	return func(limit.Charge) time.Duration { return took }
}

func userRequest(user string) *descriptors.Request {
	return &descriptors.Request{Domain: "d", Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: user}}}}}
}

// send decides one request and returns the verdict and how long it took.
func send(ctx context.Context, e *engine.Engine, user string) (engine.Verdict, time.Duration) {
	var v engine.Verdict
	began := time.Now()
	e.Decide(ctx, userRequest(user), &v)
	return v, time.Since(began)
}

func TestThrottleHoldsUntilTheTokenIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, 2*time.Second)
		for i, want := range []time.Duration{0, time.Second, time.Second} {
			v, took := send(t.Context(), e, "u")
			if v.Refused || took != want || v.Waited != want {
				t.Fatalf("request %d: refused %v after %v (waited %v), want admitted after %v", i, v.Refused, took, v.Waited, want)
			}
		}
	})
}

func TestThrottleRefusesBeyondTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, 500*time.Millisecond)
		send(t.Context(), e, "u")
		v, took := send(t.Context(), e, "u")
		if !v.Refused || took != 0 || v.RetryAfter != time.Second {
			t.Fatalf("refused %v after %v, retry after %v: want refused at once, 1s", v.Refused, took, v.RetryAfter)
		}
	})
}

func TestThrottleNeverWaitsPastTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, 2*time.Second)
		send(t.Context(), e, "u")
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		v, took := send(ctx, e, "u")
		if !v.Refused || took != 0 {
			t.Fatalf("refused %v after %v: want refused at once, the token is due after the deadline", v.Refused, took)
		}
	})
}

// TestThrottleCountsTheTimeOfTheStore: what the store took of the caller's time is gone. One whose answer would be too late is refused, in
// time, and gives back what it took.
func TestThrottleCountsTheTimeOfTheStore(t *testing.T) {
	inFleet(t, 1, throttled(100*time.Millisecond, time.Second), func(t *testing.T, f *fleet) {
		f.send(0, request("u", "", 1))
		f.delay(slowly(8 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 100500*time.Microsecond)
		defer cancel()
		v, began := new(engine.Verdict), time.Now()
		f.engines[0].Decide(ctx, request("u", "", 1), v)
		if took := time.Since(began); !v.Refused || took > 20*time.Millisecond {
			t.Fatalf("refused %v after %v, want refused at once: its token is due half a millisecond before the deadline", v.Refused, took)
		}
		pass(time.Until(began.Add(100 * time.Millisecond)))
		if v := f.send(0, request("u", "", 1)); v.Refused || v.Waited > 0 {
			t.Fatalf("refused %v, waited %v: want the token that was given back", v.Refused, v.Waited)
		}
	})
}

func TestCancelledWaiterGivesItsTokenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, counts := throttling(t, 0, 5*time.Second)
		send(t.Context(), e, "u")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			v, took := send(ctx, e, "u")
			if !v.Refused || took != 300*time.Millisecond {
				t.Errorf("refused %v after %v, want refused when its caller hung up after 300ms", v.Refused, took)
			}
		})
		<-time.After(300 * time.Millisecond)
		cancel()
		wg.Wait()
		v, took := send(t.Context(), e, "u")
		if v.Refused || took != 700*time.Millisecond {
			t.Fatalf("refused %v after %v, want the token that was given back, 700ms later", v.Refused, took)
		}
		if got := counts.Stats().Keys; got != 1 {
			t.Fatalf("%d counters, want 1", got)
		}
	})
}

func TestThrottleBoundsItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 2, time.Minute)
		send(t.Context(), e, "u")
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { send(t.Context(), e, "u") })
		}
		synctest.Wait()
		if v, took := send(t.Context(), e, "u"); !v.Refused || took != 0 {
			t.Fatalf("refused %v after %v: want the third waiter refused at once", v.Refused, took)
		}
		if got := e.Stats(); got != (engine.Stats{Waiting: 2, TurnedAway: 1}) {
			t.Fatalf("stats %+v, want 2 waiting and 1 turned away", got)
		}
		wg.Wait()
	})
}

// TestThrottleKeepsTheOrderOfEachKey: 1,000 waiters on 10 keys leave 100 ms apart per key, in the order of arrival.
func TestThrottleKeepsTheOrderOfEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, each, apart = 10, 100, 100 * time.Millisecond
		e, _ := throttlingBy(t, 0, throttled(apart, time.Minute))
		began := time.Now()
		var mu sync.Mutex
		left := map[string][]int{}
		var wg sync.WaitGroup
		for n := range each {
			for k := range keys {
				user := fmt.Sprint("u", k)
				wg.Go(func() {
					v, _ := send(t.Context(), e, user)
					mu.Lock()
					defer mu.Unlock()
					left[user] = append(left[user], n)
					if late := time.Since(began) - time.Duration(n)*apart; v.Refused || late != 0 {
						t.Errorf("%s request %d: refused %v, %v off its due time", user, n, v.Refused, late)
					}
				})
			}
			synctest.Wait()
		}
		wg.Wait()
		for user, order := range left {
			if !slices.IsSorted(order) || len(order) != each {
				t.Errorf("%s left in the order %v", user, order)
			}
		}
	})
}

func TestCancelledWaitersLeakNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { send(ctx, e, "u") })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		var m descriptors.Match
		e.Rules().Match(userRequest("u"), &m)
		if got := e.Usage(t.Context(), m.Charges)[0].ResetAfter; got > time.Second {
			t.Fatalf("full again after %v, want at most 1s: all waiters gave their tokens back", got)
		}
	})
}
