package live

import (
	"fmt"
	"testing"
)

// over reports whether a reader had to make room.
func over(r *Reader) bool {
	select {
	case <-r.Over:
		return true
	default:
		return false
	}
}

// TestNoCallerHoldsAllReaders: the oldest reader of who has most makes room, so that the next one is always served.
func TestNoCallerHoldsAllReaders(t *testing.T) {
	f := new(Feed)
	other := f.Read("other")
	var greedy []*Reader
	for range 3 * feedReaders {
		greedy = append(greedy, f.Read("greedy"))
	}
	if over(other) {
		t.Error("a reader of another caller was ended")
	}
	for i, r := range greedy {
		if ended := i < len(greedy)-feedReadersEach; over(r) != ended {
			t.Errorf("reader %d of one caller ended: %v, want %v", i+1, !ended, ended)
		}
	}
	for i := range 2 * feedReaders {
		f.Read(fmt.Sprint("caller ", i))
	}
	if n := len(f.open); n != feedReaders {
		t.Errorf("%d readers, want %d", n, feedReaders)
	}
}

func TestAReaderThatEndsMakesRoom(t *testing.T) {
	f := new(Feed)
	for range 2 * feedReaders {
		r := f.Read("one")
		f.Publish(Event{Domain: "shop"})
		if got := <-r.Items; got.Event.Domain != "shop" || over(r) {
			t.Errorf("read %+v, and had to end: %v", got, over(r))
		}
		r.End()
		r.End() // does nothing
	}
	if f.readers.Load() != 0 || len(f.open) != 0 {
		t.Errorf("%d readers are left, want none", len(f.open))
	}
}
