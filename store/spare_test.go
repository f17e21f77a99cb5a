package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// TestMemoryKeepsAShortCoolDownBeforeLongCounters: a flood of counters that last longer must not pardon a client.
func TestMemoryKeepsAShortCoolDownBeforeLongCounters(t *testing.T) {
	const bound, flood = 10_000, 100_000
	m := NewMemory(MemoryConfig{MaxKeys: bound})
	var guilty []limit.Charge
	for i := range 1000 {
		c := punished(charge(t, fmt.Sprint("guilty", i), bucket(1, time.Second), 2), limit.Penalty{Threshold: 1, Window: time.Minute, CoolDown: 10 * time.Minute})
		spend(m, c)
		guilty = append(guilty, c)
	}
	charges := []limit.Charge{{Limit: bucket(1, 24*time.Hour), Cost: 1}}
	decisions := make([]limit.Decision, 1)
	for i := range flood {
		charges[0].Key = fmt.Sprintf("rl1:{api|user=%d}:user:per-user:1:tb", i)
		m.Spend(context.Background(), charges, decisions)
	}
	if keys := m.Stats().Keys; keys != bound {
		t.Errorf("%d keys after the flood, want %d", keys, bound)
	}
	for _, c := range guilty {
		if d := spend(m, c)[0]; !d.Penalized {
			t.Fatalf("%s is pardoned by a flood: %+v", c.PenaltyKey, d)
		}
	}
	wantInOrder(t, m)
}

// TestMemoryBoundsCoolDowns: where all entries are cool-downs, those nearest to their end go.
func TestMemoryBoundsCoolDowns(t *testing.T) {
	const bound = 1000
	m := NewMemory(MemoryConfig{MaxKeys: bound})
	for i := range 5 * bound {
		spend(m, punished(charge(t, fmt.Sprint("guilty", i), bucket(1, time.Second), 2), limit.Penalty{Threshold: 1, Window: time.Minute, CoolDown: 10 * time.Minute}))
	}
	if keys := m.Stats().Keys; keys != bound {
		t.Errorf("%d keys, want %d", keys, bound)
	}
	wantInOrder(t, m)
}
