package telemetry

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// compatSources are the statistics that every sidecar has.
func (t *Telemetry) compatSources() {
	const service = "ratelimit.service."
	t.sources.add(func(s *Statsd) {
		s.counter(service+"call.should_rate_limit.redis_error", valueOf(t.errors.of("redis_error")))
		s.counter(service+"call.should_rate_limit.service_error", valueOf(t.errors.of("service_error")))
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
