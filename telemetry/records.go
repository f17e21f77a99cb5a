package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/records"
)

// Records measures the cache of records.
func (t *Telemetry) Records(stats func() records.Stats) {
	type S = records.Stats
	r := &readings[S]{take: stats}
	add := func(kind prometheus.ValueType, name, help string, value func(S) int64) {
		r.add(kind, "spillway_record_cache_"+name, help, nil, func(s S) float64 { return float64(value(s)) })
	}
	add(prometheus.GaugeValue, "entries", "Identities whose records are remembered, also empty ones.", func(s S) int64 { return s.Entries })
	add(prometheus.GaugeValue, "bytes", "Memory that they take, estimated from above.", func(s S) int64 { return s.Bytes })
	add(prometheus.CounterValue, "hits_total", "Lookups of records that Redis was not asked for.", func(s S) int64 { return s.Hits })
	add(prometheus.CounterValue, "misses_total", "Lookups of records that Redis was asked for.", func(s S) int64 { return s.Misses })
	add(prometheus.CounterValue, "drops_total", "Records forgotten early, for want of room.", func(s S) int64 { return s.Drops })
	add(prometheus.CounterValue, "unasked_total", "Records that were missing during a refill, and that the control plane could not be asked for.", func(s S) int64 { return s.Unasked })
	add(prometheus.CounterValue, "unreadable_total",
		"Records in Redis that could not be read. What was known before holds.",
		func(s S) int64 { return s.Unreadable })
	t.register.MustRegister(r)
}
