package telemetry

import (
	"maps"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/engine"
)

func TestCountersCanBeReadBack(t *testing.T) {
	m := New(Config{})
	if len(m.Decisions()) != 0 || len(m.StoreCalls()) != 0 || m.StoreLatency().Count != 0 {
		t.Fatal("something is counted before the first decision")
	}
	for range 3 {
		m.Decided(m.Rule("shop", "each", "user"), engine.Allowed)
	}
	m.Decided(m.Rule("shop", "each", "user"), engine.Refused)
	m.Decided(m.Rule("shop", "each", "ip"), engine.Refused) // another rule of that name
	m.Rule("shop", "silent", "user")
	all := m.Decisions()
	if len(all) != 1 || all[0].Domain != "shop" || all[0].Rule != "each" ||
		!maps.Equal(all[0].Outcomes, map[string]int64{"allowed": 3, "refused": 2}) {
		t.Errorf("the decisions are %v", all)
	}
	m.StoreCalled("", true, 150*time.Microsecond)
	m.StoreCalled("timeout", true, time.Second)
	m.StoreCalled("breaker_open", false, 0)
	if calls := m.StoreCalls(); !maps.Equal(calls, map[string]int64{"ok": 1, "timeout": 1, "breaker_open": 1}) {
		t.Errorf("the calls are %v", calls)
	}
	l := m.StoreLatency()
	if l.Count != 2 || l.Seconds < 1 || len(l.Buckets) != 16 || l.Buckets[2] != (Bucket{200e-6, 1}) ||
		l.Buckets[15].Count != 2 {
		t.Errorf("the latency is %+v", l)
	}
}
