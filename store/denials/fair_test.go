package denials

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestDenialsDropFromTheClassThatTakesMost: a dropped denial costs a question, but one of another limit's client stays.
func TestDenialsDropFromTheClassThatTakesMost(t *testing.T) {
	d := newDesk(t)
	refused := func(class uint32, key string, retry time.Duration) limit.Charge {
		c := charge(key, fixed, 1)
		c.Class = class
		r := request(c)
		r.Decisions[0] = limit.Decision{Outcome: limit.Refused, RetryAfter: retry, At: 1}
		d.Learn(r, d.now, d.now)
		return c
	}
	var few []limit.Charge
	for i := range 50 {
		few = append(few, refused(1, fmt.Sprint("few ", i), time.Minute))
	}
	for i := range 10_000 {
		refused(2, fmt.Sprint("many ", i), time.Hour)
	}
	for _, c := range few {
		if !d.Refuse(request(c), d.now) {
			t.Errorf("%s was forgotten", c.Key)
		}
	}
	if s := d.Stats(); s.Entries > 1000 || s.Drops < 9000 {
		t.Errorf("%+v, want at most 1000 and the rest dropped", s)
	}
}

// TestDenialsTakeNoMoreThanTheyCount compares the estimate with the heap.
func TestDenialsTakeNoMoreThanTheyCount(t *testing.T) {
	for _, size := range []int{1, 1000} {
		before := heap()
		d := New(1_000_000, 0)
		now := time.Now()
		for i := range 50_000 {
			r := request(charge(strings.Repeat("x", size)+fmt.Sprint(i), fixed, 1))
			r.Decisions[0] = limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour, At: 1}
			d.Learn(r, now, now)
		}
		took, counted := heap()-before, d.Stats().Bytes
		t.Logf("keys of %d bytes: %d bytes on the heap, %d counted", size, took, counted)
		if took > counted+1<<20 || counted > 3*took {
			t.Errorf("they take %d bytes and count %d", took, counted)
		}
		runtime.KeepAlive(d)
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

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
