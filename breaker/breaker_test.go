package breaker

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// probe drives a breaker in virtual time and reads as a script.
type probe struct {
	*Breaker
	t       *testing.T
	changes []string
}

func begin(t *testing.T, cfg Config) *probe {
	p := &probe{t: t}
	cfg.OnChange = func(from, to State, reason string) {
		p.changes = append(p.changes, fmt.Sprintf("%s>%s: %s", from, to, reason))
	}
	p.Breaker = New(cfg)
	return p
}

// do makes n calls with a result and wants each to end with the error.
func (p *probe) do(n int, r Result, want error) {
	p.t.Helper()
	for i := range n {
		if err := p.Do(func() Result { return r }); !errors.Is(err, want) {
			p.t.Fatalf("call %d: %v, want %v", i+1, err, want)
		}
	}
}

func (p *probe) is(want State) {
	p.t.Helper()
	if got := p.State(); got != want {
		p.t.Fatalf("it is %s, want %s (changes: %q)", got, want, p.changes)
	}
}

// because wants the last change to have the reason.
func (p *probe) because(want string) {
	p.t.Helper()
	if got := p.Stats().Reason; got != want {
		p.t.Errorf("reason %q, want %q", got, want)
	}
}

// openAndWait makes it open by failures and waits until the period is over for any jitter.
func (p *probe) openAndWait() {
	p.t.Helper()
	p.do(5, Failure, nil)
	p.is(Open)
	pass(1201 * time.Millisecond)
}

// hold starts a call that stays under way until the returned function ends it.
func (p *probe) hold() (end func(Result)) {
	p.t.Helper()
	results, done := make(chan Result), make(chan struct{})
	started := make(chan struct{})
	go func() {
		defer close(done)
		err := p.Do(func() Result {
			close(started)
			return <-results
		})
		if err != nil {
			p.t.Errorf("a call that had to be admitted: %v", err)
			close(started)
			<-results
		}
	}()
	<-started
	return func(r Result) {
		results <- r
		<-done
	}
}

// pass lets time go by in a bubble.
func pass(d time.Duration) { <-time.After(d) }

// script runs a test of timers in virtual time.
func script(t *testing.T, cfg Config, steps func(p *probe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { steps(begin(t, cfg)) })
}

func TestOpensAfterFiveFailuresInARow(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(4, Failure, nil)
		p.do(1, Success, nil)
		p.do(4, Failure, nil)
		p.is(Closed)
		p.do(1, Failure, nil)
		p.is(Open)
		p.do(3, Success, ErrOpen)
		if s := p.Stats(); s.Opened != 1 || s.Reason != ReasonConsecutive || s.RejectedOpen != 3 || s.Rejected() != 3 || s.Since.IsZero() {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestLateCallsOpenItByRatio(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(10, Success, nil)
		p.do(9, Late, nil)
		p.is(Closed) // 9 of 19
		p.do(1, Late, nil)
		p.is(Open)
		p.because(ReasonRatio)
	})
}

func TestALateProbeOpensAgain(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		p.do(2, Success, nil)
		p.do(1, Late, nil)
		p.is(Open)
		p.because(ReasonProbe)
	})
}

func TestFailuresInARowMayBeFarApart(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		for range 5 {
			p.is(Closed)
			p.do(1, Failure, nil)
			pass(10 * time.Second)
		}
		if s := p.Stats(); s.Opened != 1 {
			t.Errorf("opened %d times by 5 failures 10 s apart, want once", s.Opened)
		}
	})
}

func TestOpensAtHalfOfTwentyInASecond(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		for range 9 {
			p.do(1, Success, nil)
			p.do(1, Failure, nil)
		}
		p.do(1, Success, nil)
		p.is(Closed) // 9 of 19
		p.do(1, Failure, nil)
		p.is(Open)
		p.because(ReasonRatio)
	})
}

func TestTheWindowRolls(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		for range 100 { // 9 a second, half of them failures
			p.do(1, Success, nil)
			p.do(1, Failure, nil)
			pass(222 * time.Millisecond)
		}
		p.is(Closed)
	})
}

func TestAQuarterOfFailuresDoesNotOpenIt(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		for range 1000 {
			p.do(3, Success, nil)
			p.do(1, Failure, nil)
		}
		p.is(Closed)
	})
}

func TestNeutralCallsCountForNothing(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(4, Failure, nil)
		p.do(1000, Neutral, nil)
		p.is(Closed)
		p.do(1, Failure, nil) // the fifth in a row: those between were neither
		p.is(Open)
	})
}

func TestThreeProbesAtOnceThenClosed(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		one, two, three := p.hold(), p.hold(), p.hold()
		p.is(HalfOpen)
		p.do(10, Success, ErrProbing)
		one(Success)
		two(Success)
		p.is(HalfOpen)
		three(Success)
		p.is(Closed)
		want := []string{"closed>open: " + ReasonConsecutive, "open>half-open: " + ReasonWaited, "half-open>closed: " + ReasonRecovered}
		if fmt.Sprint(p.changes) != fmt.Sprint(want) {
			t.Errorf("changes %q, want %q", p.changes, want)
		}
		if s := p.Stats(); s.RejectedProbing != 10 || s.HalfOpened != 1 || s.Closed != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestAProbeThatFailsOpensAgain(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		one, two := p.hold(), p.hold()
		one(Failure)
		p.is(Open)
		two(Success) // from before the change: it must not close the breaker, nor count as a probe of the next period
		p.is(Open)
		p.do(1, Success, ErrOpen)
		if s := p.Stats(); s.Reason != ReasonProbe || s.Opened != 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestANeutralProbeFreesItsSlot(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.openAndWait()
		one, two, three := p.hold(), p.hold(), p.hold()
		p.do(1, Success, ErrProbing)
		one(Neutral)
		p.do(100, Neutral, nil)
		p.is(HalfOpen)
		two(Success)
		three(Success)
		p.do(1, Success, nil)
		p.is(Closed)
	})
}

func TestLateResultsOfAClosedBreakerDoNotTouchTheNextPeriod(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		late := p.hold()
		p.openAndWait()
		p.do(1, Success, nil)
		p.is(HalfOpen)
		late(Failure)
		p.is(HalfOpen)
	})
}

func TestAPanicIsAFailureAndPasses(t *testing.T) {
	script(t, Config{Consecutive: 1}, func(p *probe) {
		func() {
			defer func() { _ = recover() }()
			_ = p.Do(func() Result { panic("broken") })
			t.Error("the panic did not pass")
		}()
		p.is(Open)
	})
}

func TestDisabledLetsAllPass(t *testing.T) {
	script(t, Config{Disabled: true}, func(p *probe) {
		p.do(1000, Failure, nil)
		p.is(Closed)
		p.Nudge()
	})
}

func TestStatesHaveNames(t *testing.T) {
	for s, want := range map[State]string{Closed: "closed", HalfOpen: "half-open", Open: "open", 9: "unknown"} {
		if got := s.String(); got != want {
			t.Errorf("state %d is %q, want %q", s, got, want)
		}
	}
}

// TestUnderConcurrency has many callers of a server that is down every other five seconds, for the race detector. It checks that
// never more than three calls are under way outside of the closed state.
func TestUnderConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{})
		var mu sync.Mutex
		var probes, most int
		start := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for time.Since(start) < 20*time.Second {
					_ = b.Do(func() Result {
						half := b.State() == HalfOpen
						mu.Lock()
						if half {
							probes++
						}
						most = max(most, probes)
						mu.Unlock()
						pass(10 * time.Millisecond)
						mu.Lock()
						if half {
							probes--
						}
						mu.Unlock()
						if up := time.Since(start) / (5 * time.Second) % 2; up == 1 {
							return Failure
						}
						return Success
					})
					pass(time.Millisecond)
				}
			})
		}
		all.Wait()
		if s := b.Stats(); s.Opened < 2 || most < 1 || most > 3 {
			t.Errorf("stats %+v, at most %d probes at once, want 1 to 3", s, most)
		}
	})
}
