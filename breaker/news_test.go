package breaker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestASlowListenerDelaysNoOtherCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []State
		release := make(chan struct{})
		b := New(Config{Jitter: -1, OnChange: func(_, to State, _ string) {
			<-release
			told = append(told, to)
		}})
		fail := func() { _ = b.Do(func() Result { return Failure }) }
		for range 4 {
			fail()
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			fail() // opens it, and has to tell
		}()
		synctest.Wait()
		for range 2 * maxUntold { // each opens it again
			pass(1501 * time.Millisecond)
			fail()
		}
		if s := b.Stats(); s.Opened != 2*maxUntold+1 {
			t.Errorf("opened %d times while the listener hung, want %d", s.Opened, 2*maxUntold+1)
		}
		close(release)
		<-done
		if len(told) != maxUntold+1 || told[0] != Open || told[1] != HalfOpen || told[2] != Open {
			t.Errorf("told of %d changes, %v and so on, want %d in order", len(told), told[:3], maxUntold+1)
		}
	})
}

func TestAListenerMayUseTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *Breaker
		var calls int
		b = New(Config{Consecutive: 1, OnChange: func(_, to State, _ string) {
			calls++
			if got := b.State(); got != to {
				t.Errorf("state %s while told of %s", got, to)
			}
			if err := b.Do(func() Result { return Success }); err == nil {
				t.Error("a call passed an open breaker")
			}
		}})
		_ = b.Do(func() Result { return Failure })
		if calls != 1 {
			t.Errorf("told %d times of one change", calls)
		}
	})
}

func TestAnOpenBreakerIsHalfOpenAfterItsPeriod(t *testing.T) {
	script(t, Config{Jitter: -1}, func(p *probe) {
		p.do(5, Failure, nil)
		pass(999 * time.Millisecond)
		p.is(Open)
		pass(time.Millisecond)
		p.is(HalfOpen)
		if s := p.Stats(); s.State != HalfOpen || s.HalfOpened != 0 {
			t.Errorf("stats %+v: want half-open, without a change that no call has made", s)
		}
	})
}
