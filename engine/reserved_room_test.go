package engine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestNoClassTakesAllTheRoom: one class of reservations takes eight ninths, by number or by bytes, and another still finds
// room.
func TestNoClassTakesAllTheRoom(t *testing.T) {
	const plenty = math.MaxInt64 / classShare
	for name, bound := range map[string]load{"number": {900, plenty}, "bytes": {plenty, 900 * sizeOf("1.000")}} {
		r, now := newReservations(0), time.Unix(1_000_000, 0)
		r.bound = bound
		hold := func(class uint32, n int) (kept int64) {
			before := r.dropped
			for i := range n {
				r.hold(&limit.Charge{Key: fmt.Sprintf("%d.%03d", class, i), Class: class}, 0, now, time.Minute)
			}
			return int64(n) - (r.dropped - before)
		}
		if kept := hold(1, 1000); kept < 795 || kept > 805 {
			t.Errorf("%s: one class has %d of 900 places, want eight ninths", name, kept)
		}
		if kept := hold(2, 50); kept != 50 {
			t.Errorf("%s: another class finds room for %d of 50 counters", name, kept)
		}
		for key := range r.held {
			r.take(key, now)
		}
		if r.used != (load{}) || len(r.classes) != 0 {
			t.Errorf("%s: %+v of %d classes is taken after all is settled", name, r.used, len(r.classes))
		}
	}
}

// TestReservationsAreBoundedByBytes: what is beyond is counted.
func TestReservationsAreBoundedByBytes(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	e := New(Config{ReservedBytes: 100_000, Now: func() time.Time { return now }})
	for i := range 1000 {
		e.reserved.hold(&limit.Charge{Key: strings.Repeat("x", 100) + fmt.Sprint(i)}, 0, now, time.Minute)
	}
	kept := len(e.reserved.held)
	if kept < 100 || kept > 100_000/400 || e.Stats().ReservationsDropped != int64(1000-kept) {
		t.Fatalf("%d of 1000 are kept and %d dropped, want 100,000 bytes of them", kept, e.Stats().ReservationsDropped)
	}
}
