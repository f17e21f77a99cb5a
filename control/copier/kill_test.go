package copier

import (
	"testing"
	"time"
)

// killSteps are the steps between which a copier is killed. The ones of each transaction come once for events and once
// for usage.
var killSteps = []string{"read", "sources", "events", "rows", "minutes", "hours", "days", "calls", "keys", "noted", "stored",
	"removed"}

// TestKilledBetweenEveryTwoSteps kills a copier with SIGKILL after each of its steps, for each stream, while entries
// arrive. Then one copies the rest: all is stored once.
func TestKilledBetweenEveryTwoSteps(t *testing.T) {
	w := newWorld(t)
	w.keys()
	now := time.Now().UTC()
	sent, killed := int64(0), 0
	for _, step := range killSteps {
		for time := 1; time <= 2; time++ {
			sent++
			w.send("usage", usageOf("one", sent, "ann", now, sent, 0))
			w.send("usage", usageOf("two", sent, "ben", now.Add(-1e9*60), sent, 0))
			w.send("events", eventsOf("one", sent, now.Add(1e9), 20))
			if w.dies(step, time) {
				killed++
			}
		}
	}
	if killed < len(killSteps)+3 { // steps of usage alone come once
		t.Errorf("only %d of the copiers died where they should", killed)
	}
	w.drain()
	for _, table := range []string{"usage_minutes", "usage_hours", "usage_days", "endpoint_minutes", "endpoint_hours",
		"endpoint_days", "tenant_minutes", "tenant_hours", "tenant_days", "call_hours"} {
		w.want("requests of "+table, sent*(sent+1), `SELECT sum(requests)::bigint FROM `+table)
	}
	for _, user := range []string{"ann", "ben"} {
		w.want("requests with the key of "+user, sent*(sent+1)/2, keyTotal, user)
	}
	w.want("events", 20*sent, `SELECT count(*) FROM events`)
	w.want("events of identities", 20*sent, `SELECT sum(samples)::bigint FROM identity_hours`)
	w.want("sequences", 3*sent, `SELECT sum(sequence)::bigint FROM record_sources`)
	w.want("missing", 0, `SELECT sum(missing)::bigint FROM record_sources`)
}
