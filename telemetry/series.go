package telemetry

import (
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxDynamic is how many series the values of requests may make (`detailed_metric`, `value_to_metric`). All others
// share one series per domain, whose key1 is overflow.
const (
	maxDynamic = 1000
	overflow   = "other"
	maxLabel   = 256 // bytes of a label's value
)

// Hit is one limit's part in one request.
type Hit struct {
	Hits     int64 // asked for; 0 for a peek
	Charged  int64 // really taken
	Capacity int64 // the most that can be left
	Left     int64 // before the request
	Over     bool  // this limit refused
	Shadow   bool  // and its rule only counts
	Cached   bool  // the denial was known without asking the store
}

// Series is the counters of one limit under the reference server's names. Counting is a few atomic additions.
type Series struct {
	total, over, near, within, shadow, cached atomic.Int64
	labels                                    labels
}

// labels are what a series is told apart by. Levels below the second collapse into it, as in the reference server.
type labels struct{ domain, key1, key2 string }

// Add counts a hit as the reference server does: near and over take only the part of the hits beyond their thresholds,
// and ratio of the capacity, rounded down, is where near begins.
func (s *Series) Add(h Hit, ratio float64) {
	s.total.Add(h.Hits)
	near := int64(math.Floor(float64(h.Capacity) * ratio))
	before := h.Capacity - h.Left
	if !h.Over {
		s.within.Add(h.Hits)
		s.near.Add(beyond(before, before+h.Charged, near))
		return
	}
	over := h.Hits
	if !h.Cached {
		over = beyond(before, before+h.Hits, h.Capacity)
		s.near.Add(beyond(before, min(before+h.Hits, h.Capacity), near))
	}
	s.over.Add(over)
	if h.Cached {
		s.cached.Add(over)
	}
	if h.Shadow {
		s.shadow.Add(over)
	}
}

// beyond is how much of the way from before to after lies above threshold.
func beyond(before, after, threshold int64) int64 { return max(0, after-max(before, threshold)) }

// seriesSet holds all series and collects them for a scrape. It describes nothing beforehand, because key2 is left out
// where a rule has one level, as in the reference server.
type seriesSet struct {
	mu      sync.RWMutex // guards the maps
	known   map[labels]*Series
	dynamic map[labels]*Series // by labels as they came in a request
	dropped atomic.Int64       // hits that went to the overflow series
}

func newSeriesSet() *seriesSet {
	return &seriesSet{known: map[labels]*Series{}, dynamic: map[labels]*Series{}}
}

// named returns the labels of a domain and the levels of a metric key.
func named(domain string, levels []string) labels {
	l := labels{domain: domain}
	if len(levels) > 0 {
		l.key1 = levels[0]
	}
	if len(levels) > 1 {
		l.key2 = levels[1]
	}
	return l
}

// static returns the series of a limit whose labels come from the configuration.
func (s *seriesSet) static(domain string, levels []string) *Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.internLocked(named(domain, levels))
}

// perRequest returns the series of a limit whose labels hold values of the request. It keeps no reference to them.
func (s *seriesSet) perRequest(domain string, levels []string) *Series {
	raw := named(domain, levels)
	s.mu.RLock()
	found, full := s.dynamic[raw], len(s.dynamic) >= maxDynamic
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	if full {
		s.dropped.Add(1)
		return s.static(domain, []string{overflow})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	raw = labels{strings.Clone(raw.domain), strings.Clone(raw.key1), strings.Clone(raw.key2)}
	made := s.internLocked(raw)
	s.dynamic[raw] = made
	return made
}

// internLocked returns the one series of these labels.
func (s *seriesSet) internLocked(raw labels) *Series {
	clean := labels{clean(raw.domain), clean(raw.key1), clean(raw.key2)}
	if found := s.known[clean]; found != nil {
		return found
	}
	made := &Series{labels: clean}
	s.known[clean] = made
	return made
}

var ipv4 = regexp.MustCompile(`[0-9]{1,3}(\.[0-9]{1,3}){3}`)

// clean makes a label's value of any bytes, with the replacements that the reference server makes.
func clean(v string) string {
	v = strings.Map(func(r rune) rune {
		if r == ':' || r == '|' || r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(v, "_"))
	v = ipv4.ReplaceAllStringFunc(v, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	if len(v) > maxLabel {
		v = strings.ToValidUTF8(v[:maxLabel], "")
	}
	return strings.Clone(v)
}

const rateLimit = "ratelimit_service_rate_limit_"

// counters are the names under which a Series appears.
var counters = []struct {
	name, help string
	value      func(*Series) *atomic.Int64
}{
	{"total_hits", "Hits on a limit.", func(s *Series) *atomic.Int64 { return &s.total }},
	{"over_limit", "Hits beyond a limit.", func(s *Series) *atomic.Int64 { return &s.over }},
	{"near_limit", "Hits beyond NEAR_LIMIT_RATIO of a limit.", func(s *Series) *atomic.Int64 { return &s.near }},
	{"within_limit", "Hits that a limit admitted.", func(s *Series) *atomic.Int64 { return &s.within }},
	{"shadow_mode", "Hits beyond a limit that only counts.", func(s *Series) *atomic.Int64 { return &s.shadow }},
	{"over_limit_with_local_cache", "Hits refused without asking the store.", func(s *Series) *atomic.Int64 { return &s.cached }},
}

// Describe describes nothing: the labels differ from series to series.
func (s *seriesSet) Describe(chan<- *prometheus.Desc) {}

// Collect sends every counter that has counted something.
func (s *seriesSet) Collect(out chan<- prometheus.Metric) {
	s.mu.RLock()
	all := make([]*Series, 0, len(s.known))
	for _, one := range s.known {
		all = append(all, one)
	}
	s.mu.RUnlock()
	for _, one := range all {
		names, values := one.labels.pairs()
		for _, c := range counters {
			n := c.value(one).Load()
			if n == 0 {
				continue
			}
			desc := prometheus.NewDesc(rateLimit+c.name, c.help, names, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), values...)
		}
	}
}

// pairs are the names and values of the labels that are there.
func (l labels) pairs() (names, values []string) {
	if l.key2 == "" {
		return []string{"domain", "key1"}, []string{l.domain, l.key1}
	}
	return []string{"domain", "key1", "key2"}, []string{l.domain, l.key1, l.key2}
}
