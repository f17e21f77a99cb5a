package copier

import (
	"strconv"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/journal"
)

// TestSidecarsThatEndedAreForgotten lets sidecars end long ago. Their rows go, the sums stay, and their entries are not
// stored again when a Redis comes back from an old copy.
func TestSidecarsThatEndedAreForgotten(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	for n, name := range []string{"old", "older", "alive", "young"} {
		w.send(journal.UsageStream, usageOf(name, 7, "ann", now, int64(n+1), 0))
		w.send(journal.EventsStream, eventsOf(name, 7, now, 10))
	}
	w.drain()
	sums := func(when string) {
		t.Helper()
		w.want(when+": rows", 4*(6+10), `SELECT sum(rows)::bigint FROM record_sources`)
		w.want(when+": missing entries", 4*2*6, `SELECT sum(missing)::bigint FROM record_sources`)
		w.want(when+": events", 40, `SELECT count(*) FROM events`)
		w.want(when+": requests", 1+2+3+4, `SELECT sum(requests)::bigint FROM usage_days WHERE rule = ''`)
	}
	ago := func(days int) time.Time { return now.AddDate(0, 0, -days) }
	w.run(`UPDATE record_sources SET last_at = $1 WHERE sidecar = 'older'`, ago(300))
	w.run(`UPDATE record_sources SET last_at = $1 WHERE sidecar = 'old'`, ago(100))
	// it was not asked to refuse anything since
	w.run(`UPDATE record_sources SET last_at = $1 WHERE sidecar = 'alive' AND stream = 'events'`, ago(100))
	w.forgetAt = time.Time{}
	w.drain()
	w.want("sidecars that are known", 2, `SELECT count(DISTINCT sidecar) FROM record_sources WHERE sidecar <> ''`)
	w.want("rows of the others", 2, `SELECT count(*) FROM record_sources WHERE sidecar = '' AND sequence = 2`)
	sums("after they are forgotten")

	w.redis.Do(t, "FLUSHALL") // ids of the streams begin anew
	at := func(when time.Time, stream string, e journal.Entry) {
		w.redis.Do(t, append([]string{"XADD", w.cfg.Keys.Shared(stream), strconv.FormatInt(when.UnixMilli(), 10) +
			"-*"}, e.Fields()...)...)
	}
	for _, name := range []string{"older", "old"} {
		at(ago(110), journal.UsageStream, usageOf(name, 7, "ann", ago(110), 1, 0))
		at(ago(110), journal.EventsStream, eventsOf(name, 7, ago(110), 10))
	}
	w.drain()
	sums("after an old copy of Redis")
	w.want("entries that are refused", 4,
		`SELECT count(*) FROM record_refused WHERE reason LIKE '%may have been stored%'`)

	at(now, journal.UsageStream, usageOf("new", 1, "ben", now, 50, 0))
	at(ago(40), journal.EventsStream, eventsOf("late", 1, now, 10)) // it waited for a control that was away
	at(now, journal.EventsStream, eventsOf("alive", 8, now, 10))
	w.forgetAt = time.Time{}
	w.drain()
	w.want("requests of a new sidecar", 50,
		`SELECT sum(requests)::bigint FROM usage_days WHERE rule = '' AND requests = 50`)
	w.want("events of others", 60, `SELECT count(*) FROM events`)
	w.want("entries that are missing", 4*2*6, `SELECT sum(missing)::bigint FROM record_sources`)
	w.want("rows of those that are forgotten", 2,
		`SELECT count(*) FROM record_sources WHERE sidecar = '' AND sequence = 2`)
}
