package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/store/memory"
)

// TestALateRefusalIsItsRules: a request that cannot be held until its token is due is refused as its rule says.
func TestALateRefusalIsItsRules(t *testing.T) {
	d := throttled(time.Second, 5*time.Second)
	d.Rules[0].Response = &descriptors.Response{Status: 503, Message: "later"}
	for name, cause := range map[string]func(e *engine.Engine, cancel func()){
		"the caller hung up":  func(_ *engine.Engine, cancel func()) { cancel() },
		"the process ends":    func(e *engine.Engine, _ func()) { e.Drain(time.Now()) },
		"the store took long": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			gate := newGate()
			e := engine.New(engine.Config{Store: gate})
			e.Use(compile(t, d))
			send(t.Context(), e, "u")
			ctx, cancel := context.WithTimeout(t.Context(), 1000500*time.Microsecond)
			if cause != nil {
				ctx, cancel = context.WithCancel(t.Context())
			}
			defer cancel()
			if cause == nil {
				gate.delay(slowly(15 * time.Millisecond))
			}
			var v engine.Verdict
			var held sync.WaitGroup
			held.Go(func() { v, _ = send(ctx, e, "u") })
			synctest.Wait()
			if cause != nil {
				cause(e, cancel)
			}
			held.Wait()
			if !v.Refused || v.Response == nil || v.Response.Status != 503 || v.Refusing == nil || v.Refusing.Rule != "lane" {
				t.Errorf("%s: refused %v with %+v of %+v, want the rule's own", name, v.Refused, v.Response, v.Refusing)
			}
			if s := v.Statuses[0]; !s.Over || s.Effect == nil || !v.Reported.Over {
				t.Errorf("%s: status %+v, reported %+v, want both over", name, s, v.Reported)
			}
			if v.RetryAfter <= 0 || v.RetryAfter > time.Second {
				t.Errorf("%s: retry after %v, want at most the second of the token", name, v.RetryAfter)
			}
		})
	}
}

func TestShadowModeHoldsNoAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Store: memory.New(memory.Config{}), Shadow: true})
		e.Use(compile(t, throttled(time.Second, 2*time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		for i, shadowed := range []bool{false, false, true} {
			v, took := send(ctx, e, "u")
			if v.Refused || took != 0 || v.Shadowed != shadowed {
				t.Errorf("request %d: refused %v after %v, shadowed %v; want admitted at once, shadowed %v", i, v.Refused, took, v.Shadowed, shadowed)
			}
		}
	})
}

// TestNoMoreWaitersThanTheBound: requests that were at the store together do not exceed the bound together.
func TestNoMoreWaitersThanTheBound(t *testing.T) {
	inFleet(t, 1, throttled(time.Second, time.Minute), func(t *testing.T, f *fleet) {
		e := engine.New(engine.Config{Store: f.gate, Waiters: 2})
		e.Use(f.engines[0].Rules())
		f.delay(slowly(10 * time.Millisecond))
		var mu sync.Mutex
		admitted, refused := 0, 0
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				v, _ := send(t.Context(), e, "u")
				mu.Lock()
				defer mu.Unlock()
				if v.Refused {
					refused++
				} else {
					admitted++
				}
			})
		}
		pass(100 * time.Millisecond)
		if got := e.Stats().Waiting; got > 2 {
			t.Errorf("%d answers are held, want at most 2", got)
		}
		all.Wait()
		if admitted != 3 || refused != 7 || e.Stats().TurnedAway != 7 {
			t.Errorf("%d admitted, %d refused, %+v; want one at once, two held, and the others turned away", admitted, refused, e.Stats())
		}
		f.delay(atOnce)
		if v, took := send(t.Context(), e, "u"); v.Refused || took > time.Second {
			t.Errorf("refused %v after %v: those that were turned away gave their tokens back", v.Refused, took)
		}
	})
}

// TestOnlyThoseThatCouldWaitAreTurnedAway: while too many wait, a request counts as turned away if it is refused, and would have been held
// otherwise.
func TestOnlyThoseThatCouldWaitAreTurnedAway(t *testing.T) {
	d := throttled(time.Second, 5*time.Second)
	day := bucket("day", descriptors.ScopeTenant, 1)
	day.Limits[0].Window = 24 * time.Hour
	twice := bucket("twice", descriptors.ScopeTenant|descriptors.ScopeUser, 1)
	twice.Action, twice.MaxDelay = descriptors.Throttle, 5*time.Second
	twice.Limits[0].Window = 2 * time.Second
	d.Rules = append(d.Rules, day, twice)
	for name, c := range map[string]struct {
		before, then *descriptors.Request
		within       time.Duration
		refused      bool
		turned       int64
	}{
		"admitted without a wait":            {nil, request("joe", "", 1), time.Minute, false, 0},
		"admitted without a wait, two rules": {nil, request("joe", "acme", 1), time.Minute, false, 0},
		"could wait":                         {request("joe", "", 1), request("joe", "", 1), time.Minute, true, 1},
		"could wait, for two rules":          {request("joe", "acme", 1), request("joe", "beta", 1), time.Minute, true, 1},
		"refused by another rule, too":       {request("joe", "acme", 1), request("joe", "acme", 1), time.Minute, true, 0},
		"its deadline is before":             {request("joe", "", 1), request("joe", "", 1), 500 * time.Millisecond, true, 0},
		"costs more than it can ever get":    {nil, request("joe", "", 2), time.Minute, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := throttlingBy(t, 1, d)
				decide := func(req *descriptors.Request, within time.Duration) *engine.Verdict {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					v := new(engine.Verdict)
					e.Decide(ctx, req, v)
					return v
				}
				if c.before != nil {
					decide(c.before, time.Minute)
				}
				send(t.Context(), e, "u")
				var held sync.WaitGroup
				held.Go(func() { send(t.Context(), e, "u") })
				synctest.Wait()
				want(t, name, decide(c.then, c.within), c.refused)
				if got := e.Stats().TurnedAway; got != c.turned {
					t.Errorf("%d turned away, want %d", got, c.turned)
				}
				held.Wait()
			})
		})
	}
}

// TestAThrottleIsNotLeased, also where its caller has no time to wait.
func TestAThrottleIsNotLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, time.Second)
		for _, left := range []time.Duration{time.Second, 3 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			v, _ := send(ctx, e, "u")
			if c := v.Match.Charges[0]; c.Lease != 0 {
				t.Errorf("%v left: %d tokens of a throttle may be leased, with a wait of %v", left, c.Lease, c.MaxWait)
			}
		}
	})
}

// TestDrainDecidesWaits: what is due in time is held, and what is not is refused at once.
func TestDrainDecidesWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := throttling(t, 0, time.Minute)
		began := time.Now()
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				v, took := send(t.Context(), e, "u")
				want := time.Duration(n) * time.Second
				if n > 3 {
					want = 500 * time.Millisecond
				}
				if v.Refused != (n > 3) || took != want {
					t.Errorf("request %d: refused %v after %v, want refused %v after %v", n, v.Refused, took, n > 3, want)
				}
			})
			synctest.Wait()
		}
		pass(500 * time.Millisecond)
		e.Drain(began.Add(3500 * time.Millisecond))
		if v, took := send(t.Context(), e, "u"); !v.Refused || took != 0 {
			t.Errorf("refused %v after %v: want a new request refused at once that would wait past the end", v.Refused, took)
		}
		if v, took := send(t.Context(), e, "other"); v.Refused || took != 0 {
			t.Errorf("refused %v after %v: want a request admitted that needs no wait", v.Refused, took)
		}
		all.Wait()
	})
}
