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
