package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
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

// slowly is a way on which every question takes so long.
func slowly(took time.Duration) func(limit.Charge) time.Duration {
	return func(limit.Charge) time.Duration { return took }
}

// throttling runs a test with an engine that has a token per user and second, on the clock of a synctest bubble.
func throttling(t *testing.T, waiters int, longest time.Duration, test func(t *testing.T, e *engine.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Store: memory.New(memory.Config{}), Waiters: waiters})
		defer e.Close()
		e.Use(compile(t, throttled(time.Second, longest)))
		test(t, e)
	})
}

// send decides one request and returns the verdict and how long it took.
func send(ctx context.Context, e *engine.Engine, user string) (*engine.Verdict, time.Duration) {
	v, began := new(engine.Verdict), time.Now()
	e.Decide(ctx, request(user, "", 1), v)
	return v, time.Since(began)
}

// wantAfter sends a request and holds whether it is refused, and how long that took.
func wantAfter(t *testing.T, ctx context.Context, e *engine.Engine, refused bool, took time.Duration) *engine.Verdict {
	t.Helper()
	v, got := send(ctx, e, "u")
	if v.Refused != refused || got != took {
		t.Errorf("refused %v after %v, want %v after %v", v.Refused, got, refused, took)
	}
	return v
}

func TestThrottleHoldsUntilTheTokenIsDue(t *testing.T) {
	throttling(t, 0, 2*time.Second, func(t *testing.T, e *engine.Engine) {
		for _, wait := range []time.Duration{0, time.Second, time.Second} {
			if v := wantAfter(t, t.Context(), e, false, wait); v.Waited != wait {
				t.Errorf("waited %v, want %v", v.Waited, wait)
			}
		}
	})
}

// TestThrottleRefusesAtOnceWhatCannotWait: longer than the rule lets it, or past its deadline.
func TestThrottleRefusesAtOnceWhatCannotWait(t *testing.T) {
	const half = 500 * time.Millisecond
	for longest, left := range map[time.Duration]time.Duration{half: time.Hour, time.Hour: half} {
		throttling(t, 0, longest, func(t *testing.T, e *engine.Engine) {
			wantAfter(t, t.Context(), e, false, 0)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if v := wantAfter(t, ctx, e, true, 0); v.RetryAfter != time.Second {
				t.Errorf("retry after %v, want 1s", v.RetryAfter)
			}
		})
	}
}

// TestThrottleCountsTheTimeOfTheStore: what the store took of the caller's time is gone. One whose answer would be too
// late is refused, in time, and gives back what it took.
func TestThrottleCountsTheTimeOfTheStore(t *testing.T) {
	inFleet(t, 1, throttled(100*time.Millisecond, time.Second), func(t *testing.T, f *fleet) {
		began := time.Now()
		f.send(0, request("u", "", 1))
		f.delay(slowly(8 * time.Millisecond))
		v, took := f.within(100500*time.Microsecond, request("u", "", 1))
		if !v.Refused || took > 20*time.Millisecond {
			t.Fatalf("refused %v after %v, want at once: its token is due half a ms before the deadline", v.Refused, took)
		}
		pass(time.Until(began.Add(100 * time.Millisecond)))
		if v := f.send(0, request("u", "", 1)); v.Refused || v.Waited > 0 {
			t.Fatalf("refused %v, waited %v: want the token that was given back", v.Refused, v.Waited)
		}
	})
}

func TestACancelledWaiterGivesItsTokenBack(t *testing.T) {
	throttling(t, 0, 5*time.Second, func(t *testing.T, e *engine.Engine) {
		wantAfter(t, t.Context(), e, false, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { send(ctx, e, "u") })
		}
		wg.Go(func() { wantAfter(t, ctx, e, true, 300*time.Millisecond) })
		pass(300 * time.Millisecond)
		cancel()
		wg.Wait()
		synctest.Wait()
		wantAfter(t, t.Context(), e, false, 700*time.Millisecond)
	})
}

func TestThrottleBoundsItsWaiters(t *testing.T) {
	throttling(t, 2, time.Minute, func(t *testing.T, e *engine.Engine) {
		wantAfter(t, t.Context(), e, false, 0)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { send(t.Context(), e, "u") })
		}
		synctest.Wait()
		wantAfter(t, t.Context(), e, true, 0)
		if got := e.Stats(); got != (engine.Stats{Waiting: 2, TurnedAway: 1}) {
			t.Errorf("stats %+v, want 2 waiting and 1 turned away", got)
		}
		wg.Wait()
	})
}

// TestNoMoreWaitersThanTheBound: requests that were at the store together do not exceed the bound together.
func TestNoMoreWaitersThanTheBound(t *testing.T) {
	set := func(c *engine.Config) { c.Waiters = 2 }
	inFleetWith(t, 1, throttled(time.Second, time.Minute), set, func(t *testing.T, f *fleet) {
		f.delay(slowly(10 * time.Millisecond))
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { admitted.Add(int64(f.spend(0, 1))) })
		}
		all.Wait()
		if turned := f.engines[0].Stats().TurnedAway; admitted.Load() != 3 || turned != 7 {
			t.Errorf("%d admitted, %d turned away; want one at once, two held, and 7", admitted.Load(), turned)
		}
		f.delay(atOnce)
		if v, took := send(t.Context(), f.engines[0], "u"); v.Refused || took > time.Second {
			t.Errorf("refused %v after %v: those that were turned away gave their tokens back", v.Refused, took)
		}
	})
}

// TestOnlyThoseThatCouldWaitAreTurnedAway: while too many wait, a request counts as turned away if a throttle refuses
// it.
func TestOnlyThoseThatCouldWaitAreTurnedAway(t *testing.T) {
	d := throttled(time.Second, 5*time.Second)
	day := bucket("day", descriptors.ScopeTenant, 1)
	day.Limits[0].Window = 24 * time.Hour
	d.Rules = append(d.Rules, day)
	for name, c := range map[string]struct {
		before, then *descriptors.Request
		turned       int64
	}{
		"admitted without a wait":      {request("x", "", 1), request("joe", "acme", 1), 0},
		"could wait":                   {request("joe", "acme", 1), request("joe", "beta", 1), 1},
		"refused by another rule, too": {request("joe", "acme", 1), request("joe", "acme", 1), 0},
	} {
		inFleetWith(t, 1, d, func(c *engine.Config) { c.Waiters = 1 }, func(t *testing.T, f *fleet) {
			f.send(0, c.before)
			f.send(0, request("u", "", 1))
			var held sync.WaitGroup
			held.Go(func() { f.send(0, request("u", "", 1)) })
			synctest.Wait()
			v := f.send(0, c.then)
			if got := f.engines[0].Stats().TurnedAway; got != c.turned || v.Refused != (name != "admitted without a wait") {
				t.Errorf("%s: refused %v, %d turned away, want %d", name, v.Refused, got, c.turned)
			}
			held.Wait()
		})
	}
}

// TestDrainDecidesWaits: what is due in time is held, and what is not is refused at once.
func TestDrainDecidesWaits(t *testing.T) {
	throttling(t, 0, time.Minute, func(t *testing.T, e *engine.Engine) {
		began := time.Now()
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				took := time.Duration(n) * time.Second
				if n > 3 {
					took = 500 * time.Millisecond
				}
				wantAfter(t, t.Context(), e, n > 3, took)
			})
			synctest.Wait()
		}
		pass(500 * time.Millisecond)
		e.Drain(began.Add(3500 * time.Millisecond))
		wantAfter(t, t.Context(), e, true, 0)
		if v, took := send(t.Context(), e, "other"); v.Refused || took != 0 {
			t.Errorf("refused %v after %v: want a request admitted that needs no wait", v.Refused, took)
		}
		all.Wait()
	})
}

// TestALateRefusalIsItsRules: a request that cannot be held until its token is due is refused as its rule asks for.
func TestALateRefusalIsItsRules(t *testing.T) {
	d := throttled(time.Second, 5*time.Second)
	d.Rules[0].Response = &descriptors.Response{Status: 503, Message: "later"}
	for name, c := range map[string]struct {
		store time.Duration
		cause func(f *fleet, cancel func())
	}{
		"the caller hung up":  {0, func(_ *fleet, cancel func()) { cancel() }},
		"the process ends":    {0, func(f *fleet, _ func()) { f.engines[0].Drain(time.Now()) }},
		"the store took long": {15 * time.Millisecond, func(*fleet, func()) {}},
	} {
		inFleet(t, 1, d, func(t *testing.T, f *fleet) {
			f.send(0, request("u", "", 1))
			ctx, cancel := context.WithTimeout(t.Context(), 1000500*time.Microsecond)
			defer cancel()
			f.delay(slowly(c.store))
			var v *engine.Verdict
			var held sync.WaitGroup
			held.Go(func() { v, _ = send(ctx, f.engines[0], "u") })
			synctest.Wait()
			c.cause(f, cancel)
			held.Wait()
			s := v.Statuses[0]
			if v.HTTPStatus() != 503 || v.Refusing.Rule != "lane" || !s.Over || s.Effect == nil || !v.Reported.Over {
				t.Errorf("%s: refused %v with %+v, status %+v, want the rule's own", name, v.Refused, v.Response, s)
			}
			if v.RetryAfter <= 0 || v.RetryAfter > time.Second {
				t.Errorf("%s: retry after %v, want at most the second of the token", name, v.RetryAfter)
			}
		})
	}
}

func TestShadowModeHoldsNoAnswers(t *testing.T) {
	set := func(c *engine.Config) { c.Shadow = true }
	inFleetWith(t, 1, throttled(time.Second, 2*time.Second), set, func(t *testing.T, f *fleet) {
		for i, shadowed := range []bool{false, false, true} {
			v, took := f.within(1500*time.Millisecond, request("u", "", 1))
			if v.Refused || took != 0 || v.Shadowed != shadowed {
				t.Errorf("request %d: refused %v after %v, shadowed %v; want %v", i, v.Refused, took, v.Shadowed, shadowed)
			}
		}
	})
}

// TestAThrottleIsNotLeased, also where its caller has no time to wait.
func TestAThrottleIsNotLeased(t *testing.T) {
	inFleet(t, 1, throttled(time.Second, time.Second), func(t *testing.T, f *fleet) {
		for _, left := range []time.Duration{time.Second, 3 * time.Millisecond} {
			if v, _ := f.within(left, request("u", "", 1)); v.Match.Charges[0].Lease != 0 {
				t.Errorf("%v left: %+v may be leased", left, v.Match.Charges[0])
			}
		}
	})
}

// TestHoldTakesThePlaceOfWaiting: on a virtual clock a throttled answer comes at once, with the wait in its verdict.
func TestHoldTakesThePlaceOfWaiting(t *testing.T) {
	var held []time.Duration
	b := newBench(t, func(c *engine.Config) { c.Hold = func(wait time.Duration) { held = append(held, wait) } },
		throttled(time.Second, time.Minute))
	for i, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		if v := b.decide(request("u", "", 1)); v.Refused || v.Waited != wait {
			t.Errorf("request %d waits %v, refused %v, want %v", i, v.Waited, v.Refused, wait)
		}
	}
	if len(held) != 2 || held[1] != 2*time.Second {
		t.Errorf("held %v, want 1s and 2s", held)
	}
}

// TestVerdictsAreHeldTogether: their waits begin when they are decided, so they do not add up.
func TestVerdictsAreHeldTogether(t *testing.T) {
	throttling(t, 0, time.Minute, func(t *testing.T, e *engine.Engine) {
		began, verdicts := time.Now(), make([]*engine.Verdict, 5)
		for i := range verdicts {
			verdicts[i] = new(engine.Verdict)
			e.Begin(t.Context(), request("u", "", 1), verdicts[i])
		}
		e.Finish(t.Context(), verdicts...)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("five requests took %v, want the 4 s of the last token", took)
		}
		for i, v := range verdicts {
			if v.Refused || v.Waited != time.Duration(i)*time.Second {
				t.Errorf("request %d: refused %v, waited %v", i, v.Refused, v.Waited)
			}
		}
	})
}
