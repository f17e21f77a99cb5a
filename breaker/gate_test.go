package breaker

import (
	"errors"
	"testing"
	"time"
)

// opensFor measures an open period by asking every millisecond; the probe ends with the result.
func (p *probe) opensFor(r Result) time.Duration {
	p.t.Helper()
	start := time.Now()
	for {
		err := p.Do(func() Result { return r })
		if err == nil {
			return time.Since(start)
		}
		if !errors.Is(err, ErrOpen) || time.Since(start) > time.Minute {
			p.t.Fatalf("after %v: %v", time.Since(start), err)
		}
		pass(time.Millisecond)
	}
}

func TestOpenPeriodsGrowWithoutJitter(t *testing.T) {
	script(t, Config{Jitter: -1}, func(p *probe) {
		p.do(5, Failure, nil)
		for _, want := range []int64{1000, 1200, 1440, 1500, 1500} {
			if got := p.opensFor(Failure).Milliseconds(); got != want {
				t.Fatalf("open for %d ms, want %d", got, want)
			}
		}
		p.opensFor(Success)
		p.do(2, Success, nil)
		p.is(Closed)
		pass(2 * time.Second)
		p.do(5, Failure, nil)
		if got := p.opensFor(Failure); got != time.Second {
			t.Fatalf("open for %v after it was closed, want 1 s again", got)
		}
	})
}

func TestABreakerFlapsForAWhileAfterItHasClosed(t *testing.T) {
	script(t, Config{Ramp: -1}, func(p *probe) {
		flaps := func(when string, want bool) {
			t.Helper()
			if p.Flaps() != want {
				t.Errorf("%s: flaps %v, want %v", when, !want, want)
			}
		}
		flaps("new", false)
		p.openAndWait()
		flaps("open", false)
		p.do(3, Success, nil)
		flaps("closed", true)
		pass(9 * time.Second)
		flaps("closed for 9 s", true)
		pass(time.Second)
		flaps("closed for 10 s", false)
	})
}

func TestOpenPeriodsAreSpread(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(5, Failure, nil)
		p.mu.Lock()
		first := p.until.Sub(p.since)
		p.mu.Unlock()
		if first < 800*time.Millisecond || first > 1200*time.Millisecond {
			t.Errorf("first open for %v, want 0.8 s to 1.2 s", first)
		}
		least, most := time.Hour, time.Duration(0)
		for range 100 {
			got := p.opensFor(Failure)
			least, most = min(least, got), max(most, got)
		}
		if least < 800*time.Millisecond || most > 1501*time.Millisecond || most-least < 200*time.Millisecond {
			t.Errorf("open for %v to %v, want a spread within 0.8 s to 1.5 s", least, most)
		}
	})
}

func TestTheRampLetsAGrowingSharePass(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		p.do(3, Success, nil)
		p.is(Closed)
		var passed [12]int // per tenth of a second
		for i := range 1200 {
			err := p.Do(func() Result { return Success })
			if err != nil && !errors.Is(err, ErrRamp) {
				t.Fatalf("call %d: %v", i, err)
			}
			if err == nil {
				passed[i/100]++
			}
			pass(time.Millisecond)
		}
		for i, n := range passed {
			want := min(100, 14+9*i)
			if n < want-2 || n > want+2 {
				t.Errorf("%d of 100 passed in tenth %d, want about %d (all: %v)", n, i, want, passed)
			}
		}
		if s := p.Stats(); s.RejectedRamp == 0 || s.Opened != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestFailuresOnTheRampOpenItAgain(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		p.do(3, Success, nil)
		for range 60 { // a tenth of them passes
			_ = p.Do(func() Result { return Failure })
		}
		p.is(Open)
	})
}

func TestNoRamp(t *testing.T) {
	script(t, Config{Ramp: -1}, func(p *probe) {
		p.openAndWait()
		p.do(100, Success, nil)
		p.is(Closed)
	})
}

func TestASignOfLifeEndsThePeriodEarly(t *testing.T) {
	script(t, Config{Jitter: -1}, func(p *probe) {
		p.Nudge() // while closed: nothing
		p.do(5, Failure, nil)
		p.Nudge()
		if got := p.opensFor(Failure); got < 250*time.Millisecond || got > 351*time.Millisecond {
			t.Fatalf("open for %v after a sign of life at once, want a quarter of a second and a little", got)
		}
		pass(600 * time.Millisecond)
		p.Nudge()
		if got := p.opensFor(Failure); got > 101*time.Millisecond {
			t.Fatalf("open for %v more after a sign of life, want at most 100 ms", got)
		}
	})
}

func TestOneSignOfLifePerPeriod(t *testing.T) {
	script(t, Config{Jitter: -1}, func(p *probe) {
		p.random = func() float64 { return 0.9 }
		p.do(5, Failure, nil)
		p.Nudge()
		p.mu.Lock()
		first := p.until
		p.mu.Unlock()
		p.random = func() float64 { return 0 }
		p.Nudge()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.until != first {
			t.Errorf("a second sign of life moved the end of the period from %v to %v", first, p.until)
		}
	})
}

func TestConfigBounds(t *testing.T) {
	c := Config{Ratio: 7, Jitter: 3, Open: 10 * time.Second}.withDefaults()
	if c.Ratio != 1 || c.Jitter != 0.5 || c.longest() != 10*time.Second {
		t.Errorf("config %+v, longest %v: want ratio 1, jitter 0.5, and no open period that shrinks", c, c.longest())
	}
}

func TestDoDoesNotAllocate(t *testing.T) {
	b := New(Config{})
	n := 0
	allocs := testing.AllocsPerRun(1000, func() {
		_ = b.Do(func() Result { n++; return Success })
	})
	if allocs > 0 {
		t.Errorf("a call takes %v allocations, want none", allocs)
	}
}

func BenchmarkClosed(b *testing.B) {
	breaker := New(Config{})
	b.ReportAllocs()
	for b.Loop() {
		_ = breaker.Do(func() Result { return Success })
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	breaker := New(Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = breaker.Do(func() Result { return Success })
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	breaker := New(Config{Open: time.Hour, MaxOpen: 2 * time.Hour})
	for range 5 {
		_ = breaker.Do(func() Result { return Failure })
	}
	b.ReportAllocs()
	for b.Loop() {
		if breaker.Do(func() Result { return Success }) == nil {
			b.Fatal("a call passed an open breaker")
		}
	}
}
