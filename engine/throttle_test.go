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

// wantAfter sends a request and holds whether it is refused, and how long that took.
func (f *sidecars) wantAfter(ctx context.Context, refused bool, took time.Duration) *engine.Verdict {
	f.t.Helper()
	v, got := f.decide(ctx, request("u", "", 1))
	if v.Refused != refused || got != took {
		f.t.Errorf("refused %v after %v, want %v after %v", v.Refused, got, refused, took)
	}
	return v
}

func TestThrottleHoldsUntilTheTokenIsDue(t *testing.T) {
	inSidecars(t, 1, throttled(time.Second, 2*time.Second), func(t *testing.T, f *sidecars) {
		for _, wait := range []time.Duration{0, time.Second, time.Second} {
			if v := f.wantAfter(t.Context(), false, wait); v.Waited != wait {
				t.Errorf("waited %v, want %v", v.Waited, wait)
			}
		}
	})
}

// TestThrottleRefusesAtOnceWhatCannotWait: longer than the rule lets it, or past its deadline. It is not leased either.
func TestThrottleRefusesAtOnceWhatCannotWait(t *testing.T) {
	const half = 500 * time.Millisecond
	for longest, left := range map[time.Duration]time.Duration{half: time.Hour, time.Hour: half} {
		inSidecars(t, 1, throttled(time.Second, longest), func(t *testing.T, f *sidecars) {
			f.wantAfter(t.Context(), false, 0)
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if v := f.wantAfter(ctx, true, 0); v.RetryAfter != time.Second || v.Match.Charges[0].Lease != 0 {
				t.Errorf("retry after %v, want 1s; %+v may be leased", v.RetryAfter, v.Match.Charges[0])
			}
		})
	}
}

// TestNoMoreWaitersThanTheBound: requests that were at the store together do not exceed the bound together.
func TestNoMoreWaitersThanTheBound(t *testing.T) {
	inSidecars(t, 1, throttled(time.Second, time.Minute), func(t *testing.T, f *sidecars) {
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
		if v, took := f.decide(t.Context(), request("u", "", 1)); v.Refused || took > time.Second {
			t.Errorf("refused %v after %v: those that were turned away gave their tokens back", v.Refused, took)
		}
	}, func(c *engine.Config) { c.Waiters = 2 })
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
		inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
			f.send(0, c.before)
			f.send(0, request("u", "", 1))
			var held sync.WaitGroup
			held.Go(func() { f.send(0, request("u", "", 1)) })
			synctest.Wait()
			v := f.send(0, c.then)
			want := engine.Stats{Waiting: 1, TurnedAway: c.turned}
			if got := f.engines[0].Stats(); got != want || v.Refused != (name != "admitted without a wait") {
				t.Errorf("%s: refused %v, %+v, want %+v", name, v.Refused, got, want)
			}
			held.Wait()
		}, func(c *engine.Config) { c.Waiters = 1 })
	}
}

// TestDrainDecidesWaits: what is due in time is held, and what is not is refused at once.
func TestDrainDecidesWaits(t *testing.T) {
	inSidecars(t, 1, throttled(time.Second, time.Minute), func(t *testing.T, f *sidecars) {
		began := time.Now()
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				took := time.Duration(n) * time.Second
				if n > 3 {
					took = 500 * time.Millisecond
				}
				f.wantAfter(t.Context(), n > 3, took)
			})
			synctest.Wait()
		}
		pass(500 * time.Millisecond)
		f.engines[0].Drain(began.Add(3500 * time.Millisecond))
		f.wantAfter(t.Context(), true, 0)
		if v, took := f.decide(t.Context(), request("other", "", 1)); v.Refused || took != 0 {
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
		cause func(f *sidecars, cancel func())
	}{
		"the caller hung up":  {0, func(_ *sidecars, cancel func()) { cancel() }},
		"the process ends":    {0, func(f *sidecars, _ func()) { f.engines[0].Drain(time.Now()) }},
		"the store took long": {15 * time.Millisecond, func(*sidecars, func()) {}},
	} {
		inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
			f.send(0, request("u", "", 1))
			ctx, cancel := context.WithTimeout(t.Context(), 1000500*time.Microsecond)
			defer cancel()
			f.delay(slowly(c.store))
			var v *engine.Verdict
			var held sync.WaitGroup
			held.Go(func() { v, _ = f.decide(ctx, request("u", "", 1)) })
			synctest.Wait()
			c.cause(f, cancel)
			held.Wait()
			s := v.Statuses[0]
			if v.HTTPStatus != 503 || v.Refusing.Rule != "lane" || !s.Over || s.Effect == nil || !v.Reported.Over {
				t.Errorf("%s: refused %v with %+v, status %+v, want the rule's own", name, v.Refused, v.Response, s)
			}
			if v.RetryAfter <= 0 || v.RetryAfter > time.Second {
				t.Errorf("%s: retry after %v, want at most the second of the token", name, v.RetryAfter)
			}
		})
	}
}

func TestShadowModeHoldsNoAnswers(t *testing.T) {
	inSidecars(t, 1, throttled(time.Second, 2*time.Second), func(t *testing.T, f *sidecars) {
		for i, shadowed := range []bool{false, false, true} {
			v, took := f.within(1500*time.Millisecond, request("u", "", 1))
			if v.Refused || took != 0 || v.Shadowed != shadowed {
				t.Errorf("request %d: refused %v after %v, shadowed %v; want %v", i, v.Refused, took, v.Shadowed,
					shadowed)
			}
		}
	}, func(c *engine.Config) { c.Shadow = true })
}

// TestHoldTakesThePlaceOfWaiting: on a virtual clock a throttled answer comes at once, with the wait in its verdict.
func TestHoldTakesThePlaceOfWaiting(t *testing.T) {
	held := time.Duration(0)
	b := newBench(t, func(c *engine.Config) { c.Hold = func(wait time.Duration) { held += wait } },
		throttled(time.Second, time.Minute))
	for i, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
		if v := b.decide(request("u", "", 1)); v.Refused || v.Waited != wait || held != wait*time.Duration(i+1)/2 {
			t.Errorf("request %d waits %v, refused %v, want %v; %v in all", i, v.Waited, v.Refused, wait, held)
		}
	}
}
