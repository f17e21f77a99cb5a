package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/journal"
)

// Record measures the record of usage and events.
func (t *Telemetry) Record(stats func() journal.Stats) {
	type S = journal.Stats
	r := &readings[S]{take: stats}
	const p = "spillway_recorded_"
	of := func(label, value string) prometheus.Labels { return prometheus.Labels{label: value} }
	add := func(name, help string, labels prometheus.Labels, value func(S) int64) {
		r.add(prometheus.CounterValue, p+name, help, labels, func(s S) float64 { return float64(value(s)) })
	}
	const rows, entries = "Rows of usage and events that were written to the streams of Redis.", "Entries of those streams that they were written in."
	const dropped = "Rows without room in memory: of identities and endpoints (counted as others), of API keys (missing in their totals), and events (lost)."
	add("rows_total", rows, of("stream", journal.UsageStream), func(s S) int64 { return s.UsageRows })
	add("rows_total", rows, of("stream", journal.EventsStream), func(s S) int64 { return s.EventRows })
	add("entries_total", entries, of("stream", journal.UsageStream), func(s S) int64 { return s.UsageEntries })
	add("entries_total", entries, of("stream", journal.EventsStream), func(s S) int64 { return s.EventEntries })
	add("dropped_total", dropped, of("what", "identity"), func(s S) int64 { return s.DroppedIdentities })
	add("dropped_total", dropped, of("what", "endpoint"), func(s S) int64 { return s.DroppedEndpoints })
	add("dropped_total", dropped, of("what", "api_key"), func(s S) int64 { return s.DroppedKeys })
	add("dropped_total", dropped, of("what", "event"), func(s S) int64 { return s.DroppedEvents })
	add("failures_total", "Attempts to write an entry that failed, or whose reply was lost; they are retried.", nil, func(s S) int64 { return s.Failed })
	r.add(prometheus.GaugeValue, p+"memory_bytes", "Memory that the record takes at most.", nil, func(s S) float64 { return float64(s.Bytes) })
	t.register.MustRegister(r)
}
