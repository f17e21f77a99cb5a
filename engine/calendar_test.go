package engine_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// TestQuotasEndWithTheStoresDay holds that the day is that of the store's clock, also where the sidecar's is days away
// from it.
func TestQuotasEndWithTheStoresDay(t *testing.T) {
	const day = 24 * time.Hour
	d := counted(limit.FixedWindow, 3, day)
	d.Timezone, d.Rules[0].Limits[0].CalendarUnit = time.FixedZone("+5", 5*3600), descriptors.CalendarDay
	for _, ahead := range []time.Duration{0, time.Second, -time.Second, 23 * time.Hour, 40 * day, -40 * day} {
		here := noon
		b := newBench(t, func(cfg *engine.Config) {
			cfg.Now = func() time.Time { return here }
			cfg.Store = memory.New(memory.Config{Now: func() time.Time { return here.Add(ahead) }})
		}, d)
		at := here.Add(ahead)
		rest := at.Add(5 * time.Hour).Truncate(day).Add(19 * time.Hour).Sub(at) // until the next midnight at +5
		for i, refused := range []bool{false, false, false, true} {
			v := b.ask([]string{"user", "alice"})
			want(t, "the first day", v, refused)
			// the first brings the time
			if i == 1 && v.Statuses[0].ResetAfter != rest || refused && v.RetryAfter != rest {
				t.Fatalf("%v ahead: reset after %v, retry after %v; want %v", ahead, v.Statuses[0].ResetAfter,
					v.RetryAfter, rest)
			}
		}
		here = here.Add(rest - time.Microsecond)
		want(t, "the last microsecond of the day", b.ask([]string{"user", "alice"}), true)
		here = here.Add(time.Microsecond)
		want(t, "the next day", b.ask([]string{"user", "alice"}), false)
	}
}
