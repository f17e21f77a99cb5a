package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

// TestNoClassTakesAllTheRoom: one class of reservations takes eight ninths, and another still finds room.
func TestNoClassTakesAllTheRoom(t *testing.T) {
	r, now := newReservations(900*sizeOf("1.000")), int64(1_000_000)
	hold := func(class uint32, n int) (kept int64) {
		before := r.dropped.Load()
		for i := range n {
			r.hold(&limit.Charge{Key: fmt.Sprintf("%d.%03d", class, i), Class: class}, now, now)
		}
		return int64(n) - (r.dropped.Load() - before)
	}
	if kept := hold(1, 1000); kept < 795 || kept > 805 {
		t.Errorf("one class has %d of 900 places, want eight ninths", kept)
	}
	if kept := hold(2, 50); kept != 50 {
		t.Errorf("another class finds room for %d of 50 counters", kept)
	}
	for key := range r.held {
		r.take(key, now)
	}
	if r.used != 0 || len(r.classes) != 0 {
		t.Errorf("%d bytes of %d classes is taken after all is settled", r.used, len(r.classes))
	}
}

// TestReservationsAreBoundedByBytes: what is beyond is counted.
func TestReservationsAreBoundedByBytes(t *testing.T) {
	e := New(Config{ReservedBytes: 100_000})
	for i := range 1000 {
		e.reserved.hold(&limit.Charge{Key: strings.Repeat("x", 100) + fmt.Sprint(i)}, 0, 0)
	}
	kept := len(e.reserved.held)
	if kept < 100 || kept > 100_000/400 || e.Stats().ReservationsDropped != int64(1000-kept) {
		t.Fatalf("%d of 1000 are kept and %d dropped, want 100,000 bytes of them", kept, e.Stats().ReservationsDropped)
	}
}
