package telemetry

import (
	"encoding/binary"
	"maps"
	"math"
	"regexp"
	"slices"
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
	levels                                    []string // domain and metric key
}

// labels are what makes two series of Prometheus different. Levels below the second collapse into it, as in the
// reference server.
type labels struct{ domain, key1, key2 string }

// Add counts a hit as the reference server does: near and over take only the part of the hits beyond their thresholds,
// and ratio of the capacity, rounded down, is where near begins. It computes with as many digits, so that 0.7 of 90 is
// 63.
func (s *Series) Add(h Hit, ratio float64) {
	add(&s.total, h.Hits)
	near := int64(math.Floor(float64(float32(h.Capacity) * float32(ratio))))
	before := h.Capacity - h.Left
	if !h.Over {
		add(&s.within, h.Hits)
		add(&s.near, beyond(before, before+h.Charged, near))
		return
	}
	over := h.Hits
	if !h.Cached {
		over = beyond(before, before+h.Hits, h.Capacity)
		add(&s.near, beyond(before, min(before+h.Hits, h.Capacity), near))
	}
	add(&s.over, over)
	if h.Cached {
		add(&s.cached, over)
	}
	if h.Shadow {
		add(&s.shadow, over)
	}
}

// add leaves a counter alone where there is nothing to add: all cores share it, and even an addition of 0 takes it from
// them.
func add(to *atomic.Int64, n int64) {
	if n != 0 {
		to.Add(n)
	}
}

// beyond is how much of the way from before to after lies above threshold.
func beyond(before, after, threshold int64) int64 { return max(0, after-max(before, threshold)) }

// seriesSet holds all series and collects them for a scrape. It describes nothing beforehand, because key2 is left out
// where a rule has one level, as in the reference server.
type seriesSet struct {
	mu       sync.RWMutex       // guards the maps
	known    map[string]*Series // by their levels
	dynamic  map[string]*Series // by their levels as they came in a request
	overflow map[string]*Series // by domain
	dropped  *atomic.Int64      // hits that went to an overflow series
}

func newSeriesSet(dropped *atomic.Int64) *seriesSet {
	return &seriesSet{dropped: dropped, known: map[string]*Series{}, dynamic: map[string]*Series{},
		overflow: map[string]*Series{}}
}

// static returns the series of a limit whose labels come from the configuration.
func (s *seriesSet) static(domain string, levels []string) *Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.internLocked(domain, levels)
}

// perRequest returns the series of a limit whose labels hold values of the request. It keeps no reference to them.
func (s *seriesSet) perRequest(domain string, levels []string) *Series {
	var room [512]byte
	key := appendLevels(room[:0], domain, levels)
	s.mu.RLock()
	found, full, rest := s.dynamic[string(key)], len(s.dynamic) >= maxDynamic, s.overflow[domain]
	s.mu.RUnlock()
	if found != nil {
		return found
	}
	if full && rest != nil {
		s.dropped.Add(1)
		return rest
	}
	return s.addDynamic(string(key), domain, levels)
}

// addDynamic makes a series for values of a request, or the one for all values beyond the bound.
func (s *seriesSet) addDynamic(key, domain string, levels []string) *Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.dynamic[key]; found != nil {
		return found
	}
	if len(s.dynamic) >= maxDynamic {
		s.dropped.Add(1)
		rest := s.internLocked(domain, []string{overflow})
		s.overflow[strings.Clone(domain)] = rest
		return rest
	}
	short := make([]string, len(levels))
	for i := range levels {
		short[i] = cut(levels[i])
	}
	made := s.internLocked(domain, short)
	s.dynamic[key] = made
	return made
}

// cut bounds what is kept of a client's value.
func cut(level string) string { return level[:min(len(level), maxLabel)] }

// appendLevels appends domain and levels so that two of them are equal only when all their parts are.
func appendLevels(b []byte, domain string, levels []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(domain)))
	b = append(b, domain...)
	for _, level := range levels {
		level = cut(level)
		b = binary.AppendUvarint(b, uint64(len(level)))
		b = append(b, level...)
	}
	return b
}

// internLocked returns the one series of these levels.
func (s *seriesSet) internLocked(domain string, levels []string) *Series {
	made := &Series{levels: make([]string, 0, len(levels)+1)}
	made.levels = append(made.levels, clean(domain))
	for _, level := range levels {
		made.levels = append(made.levels, clean(level))
	}
	key := strings.Join(made.levels, "\x00")
	if found := s.known[key]; found != nil {
		return found
	}
	s.known[key] = made
	return made
}

// all returns every series there is.
func (s *seriesSet) all() []*Series {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.known))
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
	if strings.Count(v, ".") >= 3 {
		v = ipv4.ReplaceAllStringFunc(v, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
	}
	if len(v) > maxLabel {
		v = strings.ToValidUTF8(v[:maxLabel], "")
	}
	return strings.Clone(v)
}

const rateLimit = "ratelimit_service_rate_limit_"

// counters are the names under which a Series appears.
var counters = [...]struct {
	name, help string
	value      func(*Series) *atomic.Int64
}{
	{"total_hits", "Hits on a limit.", func(s *Series) *atomic.Int64 { return &s.total }},
	{"over_limit", "Hits beyond a limit.", func(s *Series) *atomic.Int64 { return &s.over }},
	{"near_limit", "Hits beyond NEAR_LIMIT_RATIO of a limit.", func(s *Series) *atomic.Int64 { return &s.near }},
	{"within_limit", "Hits that a limit admitted.", func(s *Series) *atomic.Int64 { return &s.within }},
	{"shadow_mode", "Hits beyond a limit that only counts.", func(s *Series) *atomic.Int64 { return &s.shadow }},
	{"over_limit_with_local_cache", "Hits refused without asking the store.",
		func(s *Series) *atomic.Int64 { return &s.cached }},
}

// Describe describes nothing: the labels differ from series to series.
func (s *seriesSet) Describe(chan<- *prometheus.Desc) {}

// Collect sends every counter that has counted something.
func (s *seriesSet) Collect(out chan<- prometheus.Metric) {
	sums := map[labels]*[len(counters)]int64{}
	for _, one := range s.all() {
		sum := sums[one.labels()]
		if sum == nil {
			sum = new([len(counters)]int64)
			sums[one.labels()] = sum
		}
		for i, c := range counters {
			sum[i] += c.value(one).Load()
		}
	}
	for of, sum := range sums {
		names, values := of.pairs()
		for i, c := range counters {
			if sum[i] == 0 {
				continue
			}
			desc := prometheus.NewDesc(rateLimit+c.name, c.help, names, nil)
			out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(sum[i]), values...)
		}
	}
}

func (s *Series) labels() labels {
	l := labels{domain: s.levels[0]}
	if len(s.levels) > 1 {
		l.key1 = s.levels[1]
	}
	if len(s.levels) > 2 {
		l.key2 = s.levels[2]
	}
	return l
}

// pairs are the names and values of the labels that are there.
func (l labels) pairs() (names, values []string) {
	if l.key2 == "" {
		return []string{"domain", "key1"}, []string{l.domain, l.key1}
	}
	return []string{"domain", "key1", "key2"}, []string{l.domain, l.key1, l.key2}
}
