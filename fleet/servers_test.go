package fleet

import (
	"slices"
	"testing"
	"time"
)

func TestAnswersAreNotAwaitedAsLongAsADial(t *testing.T) {
	const ms = time.Millisecond
	for _, step := range []struct{ dial, budget, want time.Duration }{
		{0, 10 * ms, 500 * ms}, {200 * ms, 10 * ms, 200 * ms}, {10 * time.Second, 10 * ms, 500 * ms}, {10 * time.Second, 700 * ms, 700 * ms}, {200 * ms, 300 * ms, 300 * ms},
	} {
		s := Servers{DialTimeout: step.dial}.withDefaults(Bounds{Silence: step.budget})
		o := s.options("")
		if got := []time.Duration{o.ReadTimeout, o.WriteTimeout, o.PoolTimeout}; slices.Min(got) != step.want || slices.Max(got) != step.want {
			t.Errorf("with a dial of %v and a budget of %v the library waits %v, want %v", step.dial, step.budget, got, step.want)
		}
		if o.DialTimeout != s.DialTimeout {
			t.Errorf("a dial may take %v, want %v", o.DialTimeout, s.DialTimeout)
		}
	}
}
