package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mesh/spillway/identity"
)

// Identity measures what tokens and their key sets come to.
func (t *Telemetry) Identity(stats func() identity.Stats) {
	type S = identity.Stats
	r := &readings[S]{take: stats}
	counter := func(name, help string, value func(S) uint64) {
		r.add(prometheus.CounterValue, "spillway_"+name, help, nil, func(s S) float64 { return float64(value(s)) })
	}
	gauge := func(name, help string, value func(S) int) {
		r.add(prometheus.GaugeValue, "spillway_"+name, help, nil, func(s S) float64 { return float64(value(s)) })
	}
	counter("token_cache_hits_total", "Tokens that were known already.", func(s S) uint64 { return s.Hits })
	counter("token_cache_misses_total", "Tokens that had to be verified.", func(s S) uint64 { return s.Misses })
	counter("token_cache_evicted_total", "Tokens forgotten early for want of room, or not remembered because their names are too long.", func(s S) uint64 { return s.Evicted })
	counter("tokens_invalid_total", "Tokens that were verified and yielded no client.", func(s S) uint64 { return s.Invalid })
	counter("credentials_refused_total", "Requests whose credentials contradicted each other.", func(s S) uint64 { return s.Refused })
	counter("jwks_fetches_total", "Loads of key sets.", func(s S) uint64 { return s.Fetches })
	counter("jwks_failures_total", "Loads of key sets that failed; the last good keys stayed.", func(s S) uint64 { return s.Failures })
	gauge("jwks_sets", "Key sets in use.", func(s S) int { return s.Sets })
	gauge("token_cache_entries", "Verified tokens remembered.", func(s S) int { return s.Verified })
	t.register.MustRegister(r)
}
