package telemetry

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/memory"
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

// Memory measures a store in memory. Role is main, or share where it counts the local shares of a sidecar without Redis.
func (t *Telemetry) Memory(role string, stats func() memory.Stats) {
	r := &readings[memory.Stats]{take: stats}
	of := prometheus.Labels{"store": role}
	const p = "spillway_memory_"
	r.add(prometheus.GaugeValue, p+"keys", "Counters kept in memory.", of, func(s memory.Stats) float64 { return float64(s.Keys) })
	r.add(prometheus.GaugeValue, p+"bytes", "Memory that the counters take, estimated from above.", of, func(s memory.Stats) float64 { return float64(s.Bytes) })
	r.add(prometheus.CounterValue, p+"evicted_total", "Counters forgotten early, for want of room.", of,
		func(s memory.Stats) float64 { return float64(s.Evicted) })
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
	storeRequests(counter)
	gauge("redis_in_flight", "Requests that wait for a reply of Redis.", func(s S) float64 { return float64(s.Redis.InFlight) })
	gauge("redis_waiting", "Requests that wait to be sent to Redis.", func(s S) float64 { return float64(s.Redis.Waiting) })
	gauge("redis_connections", "Open connections to Redis.", func(s S) float64 { return float64(s.Redis.Connections) })
	gauge("redis_connections_idle", "Open connections to Redis that are not in use.", func(s S) float64 { return float64(s.Redis.Idle) })
	counter("redis_pool_misses_total", "Calls that waited for a free connection.", func(s S) float64 { return float64(s.Redis.Waited) })
	counter("redis_pool_timeouts_total", "Calls that got no connection in time.", func(s S) float64 { return float64(s.Redis.Lacked) })
	leases(gauge, counter)
	gauge("denial_cache_entries", "Spent counters remembered.", func(s S) float64 { return float64(s.Denials.Entries) })
	gauge("denial_cache_bytes", "Memory that the remembered counters take, estimated from above.", func(s S) float64 { return float64(s.Denials.Bytes) })
	counter("denial_cache_hits_total", "Charges refused without asking Redis.", func(s S) float64 { return float64(s.Denials.Hits) })
	counter("denial_cache_questions_total", "Denials that were known and asked about again, at most one per counter and second.",
		func(s S) float64 { return float64(s.Denials.Questions) })
	counter("denial_cache_drops_total", "Spent counters forgotten early, for want of room.", func(s S) float64 { return float64(s.Denials.Drops) })
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

// storeRequests are the readings of what became of requests.
func storeRequests(counter func(name, help string, value func(store.RedisStats) float64)) {
	type S = store.RedisStats
	counter("redis_requests_total", "Requests that went to Redis, or would have, but for its breaker or queue.", func(s S) float64 { return float64(s.Calls.Sent) })
	counter("redis_undecided_total", "Requests without a decision of Redis.", func(s S) float64 { return float64(s.Calls.Undecided) })
	counter("redis_unknown_total", "Requests that may have charged all the same, because the connection was lost with the reply.",
		func(s S) float64 { return float64(s.Calls.Unknown) })
	counter("redis_late_total", "Requests whose reply came after their callers were answered by the failure policies.", func(s S) float64 { return float64(s.Calls.Late) })
	counter("redis_overload_total", "Requests not sent, because too many waited.", func(s S) float64 { return float64(s.Redis.Rejected) })
	counter("redis_not_returned_total", "Tokens of refused requests that could not be given back; time gives them back.",
		func(s S) float64 { return float64(s.Calls.NotReturned) })
	counter("redis_healed_total", "Counters that held a value which no limit wrote, and were deleted.", func(s S) float64 { return float64(s.Calls.Healed) })
}

// leases are the readings of what the shared store has on lease.
func leases(gauge, counter func(name, help string, value func(store.RedisStats) float64)) {
	type S = store.RedisStats
	gauge("lease_counters", "Counters that tokens are held of.", func(s S) float64 { return float64(s.Leases.Keys) })
	gauge("lease_tokens", "Tokens that are on lease and not spent.", func(s S) float64 { return float64(s.Leases.Tokens) })
	counter("lease_decisions_total", "Charges decided by tokens on lease, without asking Redis.", func(s S) float64 { return float64(s.Leases.Decisions) })
	counter("lease_calls_total", "Requests that lease tokens. Decisions less calls are the requests saved.", func(s S) float64 { return float64(s.Leases.Asks) })
	counter("lease_granted_total", "Tokens leased.", func(s S) float64 { return float64(s.Leases.Granted) })
	counter("lease_returned_total", "Tokens returned.", func(s S) float64 { return float64(s.Leases.Returned) })
	counter("lease_expired_total", "Tokens whose lease ended before they were spent or returned, or whose grant was lost on its way. They count as spent.", func(s S) float64 { return float64(s.Leases.Expired) })
	counter("lease_drops_total", "Hot counters without leases, because another one has their place.", func(s S) float64 { return float64(s.Leases.Drops) })
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
	breakerRejected = prometheus.NewDesc("spillway_breaker_rejected_total", "Calls that a breaker kept from its shard.", []string{"shard"}, nil)
)

// Describe names the metrics.
func (breakers) Describe(out chan<- *prometheus.Desc) {
	out <- breakerState
	out <- breakerChanges
	out <- breakerRejected
}

// Collect sends the numbers of the shards that are known now.
func (b breakers) Collect(out chan<- prometheus.Metric) {
	for _, server := range b().Servers {
		name, s := strings.ToValidUTF8(server.Name, "_"), server.Breaker
		out <- prometheus.MustNewConstMetric(breakerState, prometheus.GaugeValue, float64(s.State), name)
		count := func(desc *prometheus.Desc, n int64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), append([]string{name}, labels...)...)
		}
		count(breakerChanges, s.Opened, "open")
		count(breakerChanges, s.HalfOpened, "half_open")
		count(breakerChanges, s.Closed, "closed")
		count(breakerRejected, s.Rejected)
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
	add(prometheus.CounterValue, "reservations_dropped_total", "Reservations of post-paid requests that were forgotten for want of room: they stay charged beside the cost.", func(s S) int64 { return s.ReservationsDropped })
	add(prometheus.CounterValue, "give_back_failed_total", "Charges of refused requests that the shared store could not take back.", func(s S) int64 { return s.GiveBackFailed })
	t.register.MustRegister(r)
}
