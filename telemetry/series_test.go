package telemetry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/engine"
)

// counts are the numbers of a series in the order of the names.
func counts(s *Series) map[string]int64 {
	got := map[string]int64{}
	for _, c := range counters {
		if n := c.value(s).Load(); n != 0 {
			got[c.name] = n
		}
	}
	return got
}

// A limit of 10 with a ratio of 0.8: near begins at 8.
func TestHitsAreCountedAsTheReferenceServerDoes(t *testing.T) {
	const ten = 10
	steps := []struct {
		name string
		hit  Hit
		want map[string]int64
	}{
		{"far below", Hit{Hits: 3, Charged: 3, Left: 10}, map[string]int64{"total_hits": 3, "within_limit": 3}},
		{"up to near", Hit{Hits: 8, Charged: 8, Left: 10}, map[string]int64{"total_hits": 8, "within_limit": 8}},
		{"into near", Hit{Hits: 2, Charged: 2, Left: 3}, map[string]int64{"total_hits": 2, "within_limit": 2,
			"near_limit": 1}},
		{"within near", Hit{Hits: 1, Charged: 1, Left: 1}, map[string]int64{"total_hits": 1, "within_limit": 1,
			"near_limit": 1}},
		{"all of it", Hit{Hits: 10, Charged: 10, Left: 10}, map[string]int64{"total_hits": 10, "within_limit": 10,
			"near_limit": 2}},
		{"over from far", Hit{Hits: 9, Charged: 4, Left: 4, Over: true},
			map[string]int64{"total_hits": 9, "over_limit": 5, "near_limit": 2}},
		{"over from near", Hit{Hits: 3, Charged: 1, Left: 1, Over: true},
			map[string]int64{"total_hits": 3, "over_limit": 2, "near_limit": 1}},
		{"over and spent", Hit{Hits: 3, Left: 0, Over: true}, map[string]int64{"total_hits": 3, "over_limit": 3}},
		{"over in shadow", Hit{Hits: 3, Charged: 1, Left: 1, Over: true, Shadow: true},
			map[string]int64{"total_hits": 3, "over_limit": 2, "near_limit": 1, "shadow_mode": 2}},
		{"over from memory", Hit{Hits: 3, Over: true, Cached: true}, map[string]int64{"total_hits": 3, "over_limit": 3,
			"over_limit_with_local_cache": 3}},
		{"peek", Hit{Left: 1}, map[string]int64{}},
		{"peek on a spent limit", Hit{Left: 0, Over: true}, map[string]int64{}},
		{"uncharged, because another limit refused", Hit{Hits: 2, Left: 2},
			map[string]int64{"total_hits": 2, "within_limit": 2}},
		{"below zero, post-paid", Hit{Hits: 5, Charged: 5, Left: 2},
			map[string]int64{"total_hits": 5, "within_limit": 5, "near_limit": 5}},
	}
	for _, step := range steps {
		s := &Series{}
		step.hit.Capacity = ten
		s.Add(step.hit, 0.8)
		if diff := cmp.Diff(step.want, counts(s)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestNearThresholdIsRoundedDown(t *testing.T) {
	s := &Series{}
	s.Add(Hit{Hits: 3, Charged: 3, Capacity: 3, Left: 3}, 0.8) // threshold 2
	if got := s.near.Load(); got != 1 {
		t.Errorf("near_limit = %d after 3 of 3, want 1", got)
	}
	s = &Series{}
	// threshold 63, though 0.7 is a little less than that
	s.Add(Hit{Hits: 90, Charged: 90, Capacity: 90, Left: 90}, 0.7)
	if got := s.near.Load(); got != 27 {
		t.Errorf("near_limit = %d after 90 of 90, want 27", got)
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	m := New(Config{})
	s := m.Series("d", []string{"k"})
	levels := []string{"user_alice"}
	m.Dynamic("d", levels)
	rule := m.Rule("d", "k", "user")
	allocs := testing.AllocsPerRun(100, func() {
		m.Count(s, Hit{Hits: 1, Charged: 1, Capacity: 10, Left: 10})
		m.Count(m.Dynamic("d", levels), Hit{Hits: 1, Capacity: 10, Left: 10})
		m.Decided(rule, engine.Refused)
		m.Degraded(rule, "timeout")
		m.StoreCalled("", true, time.Millisecond)
		m.StoreFailed("timeout")
	})
	if allocs > 0 {
		t.Errorf("counting a request makes %v allocations, want none", allocs)
	}
}

func TestDeeperLevelsShowAsOne(t *testing.T) {
	m := New(Config{})
	for _, levels := range [][]string{{"a"}, {"a", "b", "c"}, {"a", "b", "x"}} {
		m.Count(m.Series("d", levels), Hit{Hits: 1})
	}
	lines := scrape(t, m)
	expectLine(t, lines, `ratelimit_service_rate_limit_total_hits{domain="d",key1="a"} 1`)
	expectLine(t, lines, `ratelimit_service_rate_limit_total_hits{domain="d",key1="a",key2="b"} 2`)
}

func TestAThousandValuesOfRequestsHaveSeriesAndTheNextIsOther(t *testing.T) {
	m := New(Config{})
	for i := range maxDynamic {
		m.Count(m.Dynamic("d", []string{fmt.Sprintf("user_%d", i)}), Hit{Hits: 1})
	}
	if got, dropped := len(m.series.known), m.series.dropped.Load(); got != 1000 || dropped != 0 {
		t.Fatalf("%d series and %d hits beyond after 1000 values, want 1000 and none", got, dropped)
	}
	m.Count(m.Dynamic("d", []string{"user_1000"}), Hit{Hits: 2})
	m.Count(m.Dynamic("d", []string{"user_1001"}), Hit{Hits: 3})
	m.Count(m.Dynamic("d", []string{"user_0"}), Hit{Hits: 4})
	lines := scrape(t, m)
	expectLine(t, lines, `ratelimit_service_rate_limit_total_hits{domain="d",key1="other"} 5`)
	expectLine(t, lines, `ratelimit_service_rate_limit_total_hits{domain="d",key1="user_0"} 5`)
	expectLine(t, lines, `spillway_metric_series_overflow_total 2`)
}

func TestValuesBeyondTheBoundAreCountedWithoutAllocation(t *testing.T) {
	m := New(Config{})
	for i := range maxDynamic + 1 {
		m.Dynamic("d", []string{fmt.Sprintf("user_%d", i)})
	}
	levels := []string{"user_new"}
	if allocs := testing.AllocsPerRun(100, func() { m.Dynamic("d", levels) }); allocs > 0 {
		t.Errorf("a value beyond the bound makes %v allocations, want none", allocs)
	}
}

func TestNothingIsKeptOfALongValue(t *testing.T) {
	m := New(Config{})
	m.Dynamic("d", []string{strings.Repeat("x", 1<<20)})
	for key := range m.series.dynamic {
		if len(key) > 2*maxLabel {
			t.Errorf("%d bytes are kept of a value of a megabyte, want at most %d", len(key), 2*maxLabel)
		}
	}
}

func TestLabelsHoldNothingStrange(t *testing.T) {
	long := string(make([]byte, 1000))
	cases := map[string]string{
		"remote_address_10.1.2.3": "remote_address_10_1_2_3",
		"path_a:b|c":              "path_a_b_c",
		"v1.2":                    "v1.2",
		"bad\xff\nbytes":          "bad__bytes",
		"größe":                   "größe",
	}
	for in, want := range cases {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := len(clean(long)); got != maxLabel {
		t.Errorf("a label of 1000 bytes becomes %d bytes, want %d", got, maxLabel)
	}
}
