package denials

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func TestPenaltiesAreKnownInACoolDownOnly(t *testing.T) {
	penalty := &limit.Penalty{Threshold: 3, Window: time.Minute, CoolDown: time.Hour}
	c := charge("key", fixed, 1)
	c.Penalty, c.PenaltyKey = penalty, "client"
	d := newDesk(t)
	d.ask(charge("key", fixed, 10))
	for i := range 4 {
		if r, sent := d.ask(c); sent != 1 || r.Decisions[0].Outcome != limit.Refused {
			t.Fatalf("refusal %d has to be recorded: %+v", i, r.Decisions)
		}
	}
	d.turn(500 * time.Millisecond)
	r, sent := d.ask(c)
	if got := r.Decisions[0]; sent != 0 || !got.Penalized || got.RetryAfter != time.Hour-500*time.Millisecond {
		t.Errorf("%d sent: %+v, want the rest of the cool-down", sent, got)
	}
	shadow := c
	shadow.Mode = limit.Shadow
	if _, sent := d.ask(shadow); sent != 1 {
		t.Error("a cool-down refuses nothing in shadow")
	}
	gate := limit.Charge{Key: "gate", Limit: bucket, Op: limit.Peek, Penalty: penalty, PenaltyKey: "client"}
	if _, sent := d.ask(gate, charge("other", fixed, 1)); sent == 0 {
		t.Error("the other limit was never seen")
	}
	d.Forget([]string{"client"}, d.now)
	if d.Refuse(request(c), d.now) {
		t.Error("a pardon ends it")
	}
}

// TestAThrottledRefusalEndsWhereItsWaitBegins: from then on the store takes the token and lets the caller wait.
func TestAThrottledRefusalEndsWhereItsWaitBegins(t *testing.T) {
	d := newDesk(t)
	c := charge("key", bucket, 1)
	c.MaxWait = 2 * time.Second
	d.ask(charge("key", bucket, 10))
	r, _ := d.ask(c)
	if r.Decisions[0].Outcome != limit.Refused {
		t.Fatal("the next token is due after 6 s")
	}
	for range 39 {
		d.turn(100 * time.Millisecond)
		d.ask(c)
	}
	d.turn(100 * time.Millisecond)
	if r, _ := d.ask(c); r.Decisions[0].Outcome != limit.Allowed || r.Decisions[0].Wait != 2*time.Second {
		t.Errorf("%+v, want a wait of 2 s", r.Decisions[0])
	}
}
