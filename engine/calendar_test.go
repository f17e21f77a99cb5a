package engine_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// daily is a quota per calendar day.
func daily(count int64) descriptors.Domain {
	l := descriptors.Limit{Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: count, Window: 24 * time.Hour}, CalendarUnit: descriptors.CalendarDay}
	return descriptors.Domain{
		Name: "d", Timezone: time.FixedZone("+5", 5*3600),
		Rules: []descriptors.Rule{{Name: "quota", Scope: descriptors.ScopeUser, HasScope: true, Limits: []descriptors.Limit{l}}},
	}
}

// TestQuotasEndWithTheStoresDay holds that the day is that of the store's clock, also where the sidecar's is days away
// from it.
func TestQuotasEndWithTheStoresDay(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Second, -time.Second, 23 * time.Hour, -23 * time.Hour, 40 * 24 * time.Hour, -40 * 24 * time.Hour} {
		var b *bench
		b = newBench(t, func(cfg *engine.Config) {
			cfg.Store = memory.New(memory.Config{Now: func() time.Time {
				if b == nil {
					return noon.Add(ahead)
				}
				return b.now.Add(ahead)
			}})
		}, daily(3))
		ask := func() *engine.Verdict { return b.ask([]string{"user", "alice"}) }
		want(t, "the first", ask(), false) // from here on the store's time is known
		v := ask()
		want(t, "the second", v, false)
		at := b.now.Add(ahead)
		midnight := at.Add(5 * time.Hour).Truncate(24 * time.Hour).Add(19 * time.Hour) // the next one at +5, in UTC
		if got := v.Statuses[0].ResetAfter; got != midnight.Sub(at) {
			t.Fatalf("%v ahead: the day ends after %v, want %v", ahead, got, midnight.Sub(at))
		}
		want(t, "the third", ask(), false)
		v = ask()
		want(t, "the fourth", v, true)
		if v.RetryAfter != midnight.Sub(at) {
			t.Fatalf("%v ahead: retry after %v, want %v", ahead, v.RetryAfter, midnight.Sub(at))
		}
		b.now = b.now.Add(midnight.Sub(at) - time.Microsecond)
		want(t, "the last microsecond of the day", ask(), true)
		b.now = b.now.Add(time.Microsecond)
		want(t, "the next day", ask(), false)
	}
}
