package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/store"
)

// reading is one number of a store, taken when it is scraped.
type reading[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

// readings is a collector of one snapshot's numbers.
type readings[S any] struct {
	take func() S
	all  []reading[S]
}

// Describe names the metrics.
func (r *readings[S]) Describe(out chan<- *prometheus.Desc) {
	for _, one := range r.all {
		out <- one.desc
	}
}

// Collect takes one snapshot and sends its numbers.
func (r *readings[S]) Collect(out chan<- prometheus.Metric) {
	snapshot := r.take()
	for _, one := range r.all {
		out <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(snapshot))
	}
}

func (r *readings[S]) add(kind prometheus.ValueType, name, help string, labels prometheus.Labels, value func(S) float64) {
	r.all = append(r.all, reading[S]{prometheus.NewDesc(name, help, nil, labels), kind, value})
}

// Memory measures a store in memory. Role tells stores of one sidecar apart: main or fallback.
func (t *Telemetry) Memory(role string, stats func() store.MemoryStats) {
	r := &readings[store.MemoryStats]{take: stats}
	of := prometheus.Labels{"store": role}
	const p = "spillway_memory_"
	r.add(prometheus.GaugeValue, p+"keys", "Counters kept in memory.", of, func(s store.MemoryStats) float64 { return float64(s.Keys) })
	r.add(prometheus.CounterValue, p+"evicted_total", "Counters forgotten early because there were too many.", of,
		func(s store.MemoryStats) float64 { return float64(s.Evicted) })
	r.add(prometheus.CounterValue, p+"expired_total", "Counters dropped because they were full again.", of,
		func(s store.MemoryStats) float64 { return float64(s.Expired) })
	t.register.MustRegister(r)
}

// Redis measures the shared store, and the denial cache and the breaker in front of it.
func (t *Telemetry) Redis(stats func() store.RedisStats) {
	type S = store.RedisStats
	r := &readings[S]{take: stats}
	counter := func(name, help string, value func(S) float64) {
		r.add(prometheus.CounterValue, "spillway_"+name, help, nil, value)
	}
	gauge := func(name, help string, value func(S) float64) {
		r.add(prometheus.GaugeValue, "spillway_"+name, help, nil, value)
	}
	counter("redis_trips_total", "Calls sent to Redis.", func(s S) float64 { return float64(s.Trips) })
	counter("redis_undecided_total", "Calls that brought no decision.", func(s S) float64 { return float64(s.Undecided) })
	counter("redis_scripts_loaded_total", "Calls that found the script missing and brought it along.", func(s S) float64 { return float64(s.ScriptsLoaded) })
	gauge("redis_in_flight", "Calls that wait for a reply.", func(s S) float64 { return float64(s.InFlight) })
	gauge("redis_connections", "Open connections to Redis.", func(s S) float64 { return float64(s.ConnsTotal) })
	gauge("redis_connections_idle", "Open connections to Redis without a call.", func(s S) float64 { return float64(s.ConnsIdle) })
	counter("redis_pool_misses_total", "Calls that found no ready connection.", func(s S) float64 { return float64(s.PoolMisses) })
	counter("redis_pool_timeouts_total", "Calls that found no connection at all.", func(s S) float64 { return float64(s.PoolTimeouts) })
	gauge("denial_cache_entries", "Spent counters remembered.", func(s S) float64 { return float64(s.DenialEntries) })
	counter("denial_cache_hits_total", "Charges refused without asking Redis.", func(s S) float64 { return float64(s.DenialHits) })
	counter("denial_cache_drops_total", "Spent counters forgotten early because there were too many.", func(s S) float64 { return float64(s.DenialDrops) })
	addBreaker(r, func(s S) breaker.Stats { return s.Breaker })
	t.register.MustRegister(r)
}

// addBreaker measures the breaker of a store.
func addBreaker[S any](r *readings[S], of func(S) breaker.Stats) {
	const p = "spillway_breaker_"
	r.add(prometheus.GaugeValue, p+"state", "What the breaker does with calls: 0 closed, 1 half-open, 2 open.", nil,
		func(s S) float64 { return float64(of(s).State) })
	count := func(name, help, label, value string, n func(breaker.Stats) int64) {
		r.add(prometheus.CounterValue, p+name, help, prometheus.Labels{label: value}, func(s S) float64 { return float64(n(of(s))) })
	}
	const changes = "Changes of the breaker's state, by the new one."
	count("transitions_total", changes, "to", "open", func(s breaker.Stats) int64 { return s.Opened })
	count("transitions_total", changes, "to", "half_open", func(s breaker.Stats) int64 { return s.HalfOpened })
	count("transitions_total", changes, "to", "closed", func(s breaker.Stats) int64 { return s.Closed })
	const rejected = "Calls that the breaker kept from the store."
	count("rejected_total", rejected, "reason", "open", func(s breaker.Stats) int64 { return s.RejectedOpen })
	count("rejected_total", rejected, "reason", "probing", func(s breaker.Stats) int64 { return s.RejectedProbing })
	count("rejected_total", rejected, "reason", "ramp", func(s breaker.Stats) int64 { return s.RejectedRamp })
}

// Engine measures the throttled answers.
func (t *Telemetry) Engine(stats func() engine.Stats) {
	type S = engine.Stats
	r := &readings[S]{take: stats}
	r.add(prometheus.GaugeValue, "spillway_throttle_waiting", "Throttled answers that are held.", nil, func(s S) float64 { return float64(s.Waiting) })
	r.add(prometheus.CounterValue, "spillway_throttle_turned_away_total", "Requests refused because too many waited.", nil, func(s S) float64 { return float64(s.TurnedAway) })
	t.register.MustRegister(r)
}
