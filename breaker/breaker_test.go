package breaker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// probe drives a breaker in virtual time and reads as a script.
type probe struct {
	*Breaker
	t       *testing.T
	changes []string
}

func script(t *testing.T, c Config, steps func(p *probe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &probe{t: t}
		c.OnChange = func(from, to State) { p.changes = append(p.changes, fmt.Sprint(from, " ", to)) }
		p.Breaker = New(c)
		steps(p)
	})
}

// begin starts a call that must pass.
func (p *probe) begin() (done func(Outcome)) {
	p.t.Helper()
	done, err := p.Allow()
	if err != nil {
		p.t.Fatalf("a call that had to pass: %v", err)
	}
	return done
}

// do makes calls that must pass, one after the other.
func (p *probe) do(outcomes ...Outcome) {
	p.t.Helper()
	for _, o := range outcomes {
		p.begin()(o)
	}
}

func (p *probe) is(want State) {
	p.t.Helper()
	if got := p.State(); got != want {
		p.t.Fatalf("it is %s, want %s (changes: %q)", got, want, p.changes)
	}
}

func (p *probe) refuses() {
	p.t.Helper()
	if _, err := p.Allow(); !errors.Is(err, ErrOpen) {
		p.t.Fatalf("a call that must not pass: %v", err)
	}
}

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }

func TestItOpensAfterThreeFailuresInARow(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(Failure, Failure, Success, Failure, Neither, Failure)
		p.is(Closed)
		p.do(Failure)
		p.is(Open)
		p.refuses()
	})
}

func TestFailuresInARowMayBeFarApart(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		for range 3 {
			p.is(Closed)
			p.do(Failure)
			pass(time.Hour)
		}
		if s := p.Stats(); s.Opened != 1 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestTwoThatWereUnderWayAtOnceAreEnough(t *testing.T) {
	script(t, Config{Failures: 100}, func(p *probe) {
		one, two := p.begin(), p.begin()
		one(Failure)
		p.is(Closed)
		two(Failure)
		p.is(Open)
	})
}

func TestTwoThatWereNotUnderWayAtOnceAreNot(t *testing.T) {
	script(t, Config{Failures: 100}, func(p *probe) {
		p.do(Failure, Failure, Failure, Failure)
		one, two := p.begin(), p.begin()
		one(Failure)
		p.do(Success)
		two(Failure)
		p.is(Closed) // a call between them succeeded
	})
}

func TestOneProbeClosesIt(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		p.do(Failure, Failure, Failure)
		pass(499 * time.Millisecond)
		p.is(Open)
		pass(2 * time.Millisecond)
		p.is(HalfOpen)
		probe := p.begin()
		p.refuses()
		probe(Success)
		p.is(Closed)
		if want := []string{"closed open", "open half-open", "half-open closed"}; !slices.Equal(p.changes, want) {
			t.Errorf("the changes are %q", p.changes)
		}
		want := Stats{State: Closed, Since: p.Stats().Since, Opened: 1, HalfOpened: 1, Closed: 1, Rejected: 1}
		if got := p.Stats(); got != want || got.Since != time.Now() {
			t.Errorf("stats: %+v, want %+v", got, want)
		}
	})
}

func TestAProbeThatFailsOpensItAgain(t *testing.T) {
	script(t, Config{Open: time.Second, Probes: 2}, func(p *probe) {
		p.do(Failure, Failure, Failure)
		pass(time.Second + time.Millisecond)
		p.do(Success)
		p.is(HalfOpen)
		p.do(Failure)
		p.is(Open)
		pass(time.Second + time.Millisecond)
		p.do(Neither, Neither, Neither) // they leave their places to others
		p.is(HalfOpen)
		p.do(Success, Success)
		p.is(Closed)
	})
}

// TestWhatBeganBeforeAChangeDoesNotCount: an old call shows nothing about the server as it is now.
func TestWhatBeganBeforeAChangeDoesNotCount(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		old := p.begin()
		p.do(Failure, Failure, Failure)
		pass(time.Second)
		p.is(HalfOpen)
		old(Success)
		p.is(HalfOpen)
	})
}

func TestStopsCounts(t *testing.T) {
	script(t, Config{}, func(p *probe) {
		if p.Stops() {
			t.Error("it stops calls while it is closed")
		}
		p.do(Failure, Failure, Failure)
		if !p.Stops() || p.Stats().Rejected != 1 {
			t.Errorf("open it does not stop calls: %+v", p.Stats())
		}
		pass(time.Second)
		if p.Stops() {
			t.Error("it stops the probe")
		}
	})
}

// TestAListenerMayAsk: it is called outside of all locks.
func TestAListenerMayAsk(t *testing.T) {
	var b *Breaker
	var states []State
	b = New(Config{OnChange: func(_, to State) { states = append(states, to, b.Stats().State) }})
	for range 3 {
		done := must.Get(b.Allow())(t)
		done(Failure)
	}
	if !slices.Equal(states, []State{Open, Open}) {
		t.Errorf("the states are %v", states)
	}
}
