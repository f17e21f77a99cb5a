package telemetry

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/store"
)

// compatSources are the statistics that every sidecar has.
func (t *Telemetry) compatSources() {
	const service = "ratelimit.service."
	t.sources.add(func(s *Statsd) {
		s.counter(service+"config_load_success", valueOf(t.loads))
		s.counter(service+"config_load_error", valueOf(t.loadErrors))
		s.counter(service+"global_shadow_mode", valueOf(t.shadowed))
		s.counter(service+"call.should_rate_limit.redis_error", valueOf(t.errors.of("redis_error")))
		s.counter(service+"call.should_rate_limit.service_error", valueOf(t.errors.of("service_error")))
		// A domain without rules is named by the caller, so it does not become part of a name.
		s.counter(service+"rate_limit."+overflow+".domain_not_found", valueOf(t.unknown))
	})
	t.sources.add(func(s *Statsd) {
		for _, one := range t.series.all() {
			name := service + "rate_limit." + strings.Join(one.levels, ".") + "."
			for _, c := range counters {
				if n := c.value(one).Load(); n > 0 {
					s.counter(name+c.name, float64(n))
				}
			}
		}
	})
}

// methodSource is the statistics of one gRPC method.
func (t *Telemetry) methodSource(name string, m method) {
	of := "ratelimit_server." + name + "."
	t.sources.add(func(s *Statsd) {
		s.counter(of+"total_requests", valueOf(m.requests))
		seen, kept := m.times.take()
		for _, ms := range kept {
			s.line(of+"response_time", ms, "|ms", float64(len(kept))/float64(seen))
		}
	})
}

// redisSource is the statistics of the shared store, as far as the reference server has them.
func (t *Telemetry) redisSource(stats func() store.RedisStats) {
	t.sources.add(func(s *Statsd) {
		now := stats()
		for _, one := range redisCompat {
			send := s.counter
			if one.gauge {
				send = s.gauge
			}
			send("ratelimit."+strings.Join(one.path, "."), one.value(now))
		}
	})
}

// redisCompat are the numbers of the shared store and of the denials in front of it that have a name in the reference server.
var redisCompat = []struct {
	path  []string
	help  string
	gauge bool
	value func(store.RedisStats) float64
}{
	{[]string{"redis_pool", "cx_active"}, "Open connections to Redis.", true, func(s store.RedisStats) float64 { return float64(s.Redis.Connections) }},
	{[]string{"redis_pool", "cx_total"}, "Connections to Redis opened so far.", false, func(s store.RedisStats) float64 { return float64(s.Redis.Opened) }},
	{[]string{"redis_pool", "cx_local_close"}, "Connections to Redis closed so far.", false, func(s store.RedisStats) float64 { return float64(s.Redis.Ended) }},
	{[]string{"localcache", "hitCount"}, "Charges refused without asking Redis.", false, func(s store.RedisStats) float64 { return float64(s.Denials.Hits) }},
	{[]string{"localcache", "missCount"}, "Charges that were looked up among the spent counters, and not refused by them.", false, func(s store.RedisStats) float64 { return float64(s.Denials.Misses) }},
	{[]string{"localcache", "entryCount"}, "Spent counters remembered.", true, func(s store.RedisStats) float64 { return float64(s.Denials.Entries) }},
	{[]string{"localcache", "evacuateCount"}, "Spent counters forgotten early because there were too many.", false, func(s store.RedisStats) float64 { return float64(s.Denials.Drops) }},
}

// maxTimes is how many response times of one method a flush sends.
const maxTimes = 1000

// times keeps a fair sample of the response times between two flushes.
type times struct {
	mu   sync.Mutex // guards the others
	seen int64
	kept []float64 // milliseconds
}

// observe adds a response time.
func (t *times) observe(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ms := float64(took.Microseconds()) / 1e3
	t.seen++
	if len(t.kept) < maxTimes {
		t.kept = append(t.kept, ms)
		return
	}
	if i := rand.Int64N(t.seen); i < maxTimes {
		t.kept[i] = ms
	}
}

// take returns how many times there were and which of them were kept, and begins anew.
func (t *times) take() (seen int64, kept []float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, kept = t.seen, t.kept
	t.seen, t.kept = 0, make([]float64, 0, len(kept))
	return seen, kept
}
