package fleet

import (
	"testing"
	"time"
)

// TestTheKernelTellsTheTimes of all processors, and that they go on.
func TestTheKernelTellsTheTimes(t *testing.T) {
	first, ok := processors()
	if !ok || first.all <= 0 || first.taken < 0 || first.taken > first.all {
		t.Fatalf("the processors' times are %+v, known: %v", first, ok)
	}
	await(t, "processors' times that go on", func() bool {
		second, ok := processors()
		return ok && second.all > first.all && second.taken >= first.taken
	})
	for _, text := range []string{"", "cpu 1 2 3 4 5 6 7\n", "cpu 1 2 3 4 5 6 7 x\n", "intr 1 2 3 4 5 6 7 8\n"} {
		if got, ok := parseTimes(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
	got, ok := parseTimes("cpu  1 2 3 4 5 6 7 8 90 90\ncpu0 1 1\n")
	if !ok || got != (times{80 * time.Millisecond, 360 * time.Millisecond}) {
		t.Errorf("got %+v (%v), want 80 ms of 360 ms", got, ok)
	}
}
