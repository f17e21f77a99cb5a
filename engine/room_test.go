package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestNoClassTakesAllTheRoom: one class takes eight ninths, by number or by bytes, and another still finds room.
func TestNoClassTakesAllTheRoom(t *testing.T) {
	for name, bound := range map[string]load{"number": {900, math.MaxInt64 / classShare}, "bytes": {math.MaxInt64 / classShare, 900 * sizeOf("000")}} {
		r := newRoom(bound.counters, bound.bytes)
		taken := 0
		for i := range 1000 {
			if r.take(1, fmt.Sprintf("%03d", i)) {
				taken++
			}
		}
		if taken < 795 || taken > 805 {
			t.Errorf("%s: one class has %d of 900 places, want eight ninths", name, taken)
		}
		for i := range 50 {
			if !r.take(2, fmt.Sprintf("%03d", i)) {
				t.Fatalf("%s: another class finds no room for its counter %d", name, i)
			}
		}
		for i := range taken {
			r.give(1, fmt.Sprintf("%03d", i))
		}
		for i := range 50 {
			r.give(2, fmt.Sprintf("%03d", i))
		}
		if r.used != (load{}) || len(r.classes) != 0 {
			t.Errorf("%s: %+v of %d classes is taken after all is given back", name, r.used, len(r.classes))
		}
	}
}

// TestReservationsAreBoundedByBytes: what is beyond is counted, and room comes back with what is settled or over.
func TestReservationsAreBoundedByBytes(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	e := New(Config{ReservedBytes: 100_000, Now: func() time.Time { return now }})
	hold := func(n int) {
		for i := range n {
			c := &limit.Charge{Key: strings.Repeat("x", 100) + fmt.Sprint(i)}
			e.reserved.hold(c, 0, now, time.Minute)
		}
	}
	hold(1000)
	kept := len(e.reserved.held)
	if kept < 100 || kept > 100_000/400 || e.Stats().ReservationsDropped != int64(1000-kept) {
		t.Fatalf("%d of 1000 reservations are kept and %d counted as dropped, want 100,000 bytes of them", kept, e.Stats().ReservationsDropped)
	}
	for key := range e.reserved.held {
		e.reserved.take(key, now)
	}
	if e.reserved.room.used != (load{}) {
		t.Fatalf("%+v is taken after all is settled", e.reserved.room.used)
	}
}
