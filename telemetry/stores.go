package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

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
	r.add(prometheus.GaugeValue, p+"bytes", "Memory that the counters take, estimated from above.", of, func(s store.MemoryStats) float64 { return float64(s.Bytes) })
	r.add(prometheus.CounterValue, p+"evicted_total", "Counters forgotten early, for want of room.", of,
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
	counter("redis_undecided_total", "Calls without a decision.", func(s S) float64 { return float64(s.Undecided) })
	counter("redis_scripts_loaded_total", "Calls that found the script missing and sent it along.", func(s S) float64 { return float64(s.ScriptsLoaded) })
	counter("redis_healed_total", "Counters that held a value which no limit wrote, and were deleted after 30 s.",
		func(s S) float64 { return float64(s.Healed) })
	gauge("redis_in_flight", "Calls that wait for a reply.", func(s S) float64 { return float64(s.Fleet.InFlight) })
	gauge("redis_connections", "Open connections to Redis.", func(s S) float64 { return float64(s.Fleet.Connections) })
	gauge("redis_connections_idle", "Open connections to Redis without a call.", func(s S) float64 { return float64(s.Fleet.Idle) })
	counter("redis_pool_misses_total", "Calls that found no connection ready and waited for one.", func(s S) float64 { return float64(s.Fleet.Waited) })
	counter("redis_pool_timeouts_total", "Calls that got no connection in time.", func(s S) float64 { return float64(s.Fleet.Lacked) })
	leases(gauge, counter)
	gauge("denial_cache_entries", "Spent counters remembered.", func(s S) float64 { return float64(s.DenialEntries) })
	gauge("denial_cache_bytes", "Memory that the remembered counters take, estimated from above.", func(s S) float64 { return float64(s.DenialBytes) })
	counter("denial_cache_hits_total", "Charges refused without asking Redis.", func(s S) float64 { return float64(s.DenialHits) })
	counter("denial_cache_questions_total", "Denials that were known and asked about again, at most one per counter and second.", func(s S) float64 { return float64(s.DenialQuestions) })
	counter("denial_cache_drops_total", "Spent counters forgotten early, for want of room.", func(s S) float64 { return float64(s.DenialDrops) })
	counter("redis_unknown_total", "Calls that may have charged all the same, because the connection was lost with the reply.", func(s S) float64 { return float64(s.Unknown) })
	counter("redis_late_total", "Calls whose reply came after their callers were answered by the failure policies.", func(s S) float64 { return float64(s.Late) })
	counter("redis_overload_total", "Calls not sent, because more were under way than Redis answers in time.", func(s S) float64 { return float64(s.Fleet.Rejected) })
	counter("redis_not_returned_total", "Tokens of refused requests that could not be given back; time gives them back.", func(s S) float64 { return float64(s.NotReturned) })
	for _, one := range redisCompat {
		kind := prometheus.CounterValue
		if one.gauge {
			kind = prometheus.GaugeValue
		}
		r.add(kind, "ratelimit_"+strings.Join(one.path, "_"), one.help, nil, one.value)
	}
	t.register.MustRegister(r, breakers(stats))
	t.redisSource(stats)
}

// leases are the readings of what the shared store has on lease.
func leases(gauge, counter func(name, help string, value func(store.RedisStats) float64)) {
	type S = store.RedisStats
	gauge("lease_counters", "Counters that tokens are held of.", func(s S) float64 { return float64(s.LeaseKeys) })
	gauge("lease_tokens", "Tokens that are on lease and not spent.", func(s S) float64 { return float64(s.LeaseTokens) })
	counter("lease_decisions_total", "Charges decided by tokens on lease, without asking Redis.", func(s S) float64 { return float64(s.LeaseDecisions) })
	counter("lease_calls_total", "Calls that lease and return tokens. Decisions less calls are the calls saved.", func(s S) float64 { return float64(s.LeaseAsks) })
	counter("lease_granted_total", "Tokens leased.", func(s S) float64 { return float64(s.LeaseGranted) })
	counter("lease_returned_total", "Tokens returned.", func(s S) float64 { return float64(s.LeaseReturned) })
	counter("lease_expired_total", "Tokens whose lease ended before they were spent or returned. They count as spent.", func(s S) float64 { return float64(s.LeaseExpired) })
	counter("lease_drops_total", "Hot counters without leases, because another one has their place.", func(s S) float64 { return float64(s.LeaseDrops) })
	counter("lease_refusals_total", "Refusals by a token bucket that had enough tokens, but had lent them.", func(s S) float64 { return float64(s.LeaseRefusals) })
}

// Live measures how many sidecars share the store, and how many of them have rules for each of these domains. live is asked for all with
// an empty domain.
func (t *Telemetry) Live(live func(domain string) int, domains func() []string) {
	t.register.MustRegister(liveSidecars{live, domains})
}

// liveSidecars measures the sidecars that share a store.
type liveSidecars struct {
	live    func(domain string) int
	domains func() []string
}

var (
	liveAll      = prometheus.NewDesc("spillway_live_sidecars", "Sidecars that share the store, as last known.", nil, nil)
	liveOfDomain = prometheus.NewDesc("spillway_domain_sidecars", "Sidecars that share the store and have rules for the domain, as last known; a local share is the limit divided by it.", []string{"domain"}, nil)
)

// Describe names the metrics.
func (liveSidecars) Describe(out chan<- *prometheus.Desc) {
	out <- liveAll
	out <- liveOfDomain
}

// Collect sends the numbers of the domains that are loaded now.
func (l liveSidecars) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(liveAll, prometheus.GaugeValue, float64(l.live("")))
	for _, domain := range l.domains() {
		out <- prometheus.MustNewConstMetric(liveOfDomain, prometheus.GaugeValue, float64(l.live(domain)), strings.ToValidUTF8(domain, "_"))
	}
}

// breakers measures the breakers of a store, of which there are more or fewer as its servers come and go.
type breakers func() store.RedisStats

var (
	breakerState    = prometheus.NewDesc("spillway_breaker_state", "What the breaker of a shard does with calls: 0 closed, 1 half-open, 2 open.", []string{"shard"}, nil)
	breakerChanges  = prometheus.NewDesc("spillway_breaker_transitions_total", "Changes of a breaker's state, by the new one.", []string{"shard", "to"}, nil)
	breakerRejected = prometheus.NewDesc("spillway_breaker_rejected_total", "Calls that a breaker kept from its shard.", []string{"shard", "reason"}, nil)
)

// Describe names the metrics.
func (breakers) Describe(out chan<- *prometheus.Desc) {
	out <- breakerState
	out <- breakerChanges
	out <- breakerRejected
}

// Collect sends the numbers of the shards that are known now.
func (b breakers) Collect(out chan<- prometheus.Metric) {
	for _, shard := range b().Shards {
		name, s := strings.ToValidUTF8(shard.Name, "_"), shard.Breaker
		out <- prometheus.MustNewConstMetric(breakerState, prometheus.GaugeValue, float64(s.State), name)
		count := func(desc *prometheus.Desc, n int64, label string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), name, label)
		}
		count(breakerChanges, s.Opened, "open")
		count(breakerChanges, s.HalfOpened, "half_open")
		count(breakerChanges, s.Closed, "closed")
		count(breakerRejected, s.RejectedOpen, "open")
		count(breakerRejected, s.RejectedProbing, "probing")
		count(breakerRejected, s.RejectedRamp, "ramp")
	}
}

// Engine measures the throttled answers, and what is between this sidecar and the shared store.
func (t *Telemetry) Engine(stats func() engine.Stats) {
	type S = engine.Stats
	r := &readings[S]{take: stats}
	add := func(kind prometheus.ValueType, name, help string, value func(S) int64) {
		r.add(kind, "spillway_"+name, help, nil, func(s S) float64 { return float64(value(s)) })
	}
	add(prometheus.GaugeValue, "throttle_waiting", "Throttled answers that are held.", func(s S) int64 { return s.Waiting })
	add(prometheus.CounterValue, "throttle_turned_away_total", "Requests refused because too many waited.", func(s S) int64 { return s.TurnedAway })
	add(prometheus.GaugeValue, "owed_counters", "Counters for which the shared store is owed what was admitted without it.", func(s S) int64 { return s.Owed })
	add(prometheus.CounterValue, "charged_back_total", "Tokens admitted without the shared store that it was charged later.", func(s S) int64 { return s.ChargedBack })
	add(prometheus.CounterValue, "charge_back_lost_total", "Tokens that the shared store may or may not have been charged later.", func(s S) int64 { return s.ChargeBackLost })
	add(prometheus.CounterValue, "owed_dropped_total", "Tokens that are not charged back, for want of room.", func(s S) int64 { return s.OwedDropped })
	add(prometheus.CounterValue, "reservations_dropped_total", "Reservations of post-paid requests that were forgotten for want of room: they stay charged beside the cost.", func(s S) int64 { return s.ReservationsDropped })
	add(prometheus.CounterValue, "give_back_failed_total", "Charges of refused requests that the shared store could not take back.", func(s S) int64 { return s.GiveBackFailed })
	t.register.MustRegister(r)
}
