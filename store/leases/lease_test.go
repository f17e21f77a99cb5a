package leases

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestTheEndOfALease: it counts from before the call was sent, is 200 ms at most, and what is left goes back 20 ms
// before.
func TestTheEndOfALease(t *testing.T) {
	for name, c := range map[string]struct{ wait, life time.Duration }{
		"as granted":     {150 * time.Millisecond, 150*time.Millisecond - 150*time.Microsecond},
		"200 ms at most": {time.Second, 200*time.Millisecond - 200*time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			d, hot := newDesk(t), charge("key", perSecond, 1)
			d.grant = func(*limit.Request) limit.Decision {
				return limit.Decision{Outcome: limit.Allowed, Charged: 10, At: 1, Wait: c.wait}
			}
			d.warm(hot)
			d.ask(hot)
			for range 4 { // it is used all the time
				d.turn((c.life - lastMoment - 1) / 4)
				d.spend(hot)
			}
			d.want("before", d.Ended(d.now))
			d.turn(lastMoment)
			if !d.spend(hot) {
				t.Error("it is held until its end")
			}
			d.turn(4)
			if d.spend(hot) {
				t.Error("it was spent after its end")
			}
			d.want("at its end", d.Ended(d.now), "spent 5", "returned 5")
			d.want("afterwards", d.Ended(d.now))
		})
	}
}

func TestTheLongerOfTwoClocksCounts(t *testing.T) {
	h := &lease{sent: instant{1000, 5000}}
	for now, want := range map[instant]time.Duration{{1100, 5300}: 300, {1400, 5300}: 400, {1100, 100}: 100} {
		if got := h.age(now); got != want {
			t.Errorf("at %+v it is %v old, want %v", now, got, want)
		}
	}
}

func TestAnIdleLeaseGoesBack(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	d.ask(c)
	d.turn(idleAfter - 1)
	d.want("just used", d.Ended(d.now))
	d.turn(1)
	d.want("idle", d.Ended(d.now), "returned 4")
	if s := d.Stats(); s.Keys != 0 || s.Tokens != 0 || s.Granted != 4 || s.Returned != 4 {
		t.Errorf("%+v, want all returned", s)
	}
}

// TestOneAtATime: while tokens are on their way no others are asked for, and a while after there were none.
func TestOneAtATime(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	_, after := d.Around(request(c), d.now)
	d.want("the first", after, "lend 4")
	d.turn(time.Millisecond)
	_, none := d.ask(c)
	d.want("on its way", none)
	d.Granted(after[0], d.now) // without a reply
	d.turn(pause - 1)
	_, none = d.ask(c)
	d.want("paused", none)
	d.turn(1)
	_, after = d.ask(c)
	d.want("again", after, "lend 5")
}

// TestALostGrantCountsAsExpired: what the reply would have lent is charged, unless the request never ran.
func TestALostGrantCountsAsExpired(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	_, after := d.Around(request(c), d.now)
	after[0].Decisions[0].Unknown = true
	d.Granted(after[0], d.now)
	if s := d.Stats(); d.spend(c) || s.Expired != 4 {
		t.Errorf("%+v, want 4 tokens expired and none held", s)
	}
}

// TestAResetVoidsAGrantOnItsWay: the counter does not know any more what it lent.
func TestAResetVoidsAGrantOnItsWay(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	_, after := d.Around(request(c), d.now)
	d.End([]string{"key", "other"})
	after[0].Decisions[0] = d.grant(after[0])
	d.Granted(after[0], d.now)
	if s := d.Stats(); d.spend(c) || s.Keys != 0 || s.Expired != 4 {
		t.Errorf("%+v: what was granted before a reset was kept", s)
	}
	d.turn(pause)
	d.ask(c)
	d.End([]string{"key"})
	if d.spend(c) {
		t.Error("what was held at a reset was kept")
	}
	d.want("a reset", d.Clear())
}

func TestAChangedLimitIsNotServed(t *testing.T) {
	d, c := newDesk(t), charge("key", perSecond, 1)
	d.warm(c)
	d.ask(c)
	changed := charge("key", bucket(50, 50), 1)
	if d.spend(changed) {
		t.Fatal("decided by a lease of another limit")
	}
	before, _ := d.ask(changed)
	d.want("in front", before, "returned 4")
	if before[0].Charges[0].Limit != perSecond {
		t.Error("it goes back to another limit than it came from")
	}
}

func TestClearReturnsAll(t *testing.T) {
	d := newDesk(t)
	for i := range 10 {
		c := charge(fmt.Sprint("key ", i), perSecond, 1)
		d.warm(c)
		d.ask(c)
	}
	all := d.Clear()
	d.Lost(all[0])
	if s := d.Stats(); len(all) != 10 || s.Keys != 0 || s.Returned != 36 || s.Expired != 4 {
		t.Errorf("%d returned: %+v", len(all), s)
	}
}
