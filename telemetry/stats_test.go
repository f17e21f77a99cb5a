package telemetry

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTagsNameMetrics has a field of each kind that Measure reads.
func TestTagsNameMetrics(t *testing.T) {
	type server struct {
		Name  string `label:"server"`
		Open  bool   `metric:"try_open" help:"Whether it is open."`
		Calls uint64 `metric:"try_calls_total" labels:"kind=cold" help:"Calls."`
		Hot   uint64 `metric:"try_calls_total" labels:"kind=hot"`
	}
	type all struct {
		Age     time.Duration    `metric:"try_age_seconds" help:"How old it is."`
		At      time.Time        `metric:"try_at_seconds" help:"When."`
		Unknown int              `metric:"try_unknown" help:"Left out, because it is below 0."`
		Errors  map[string]int64 `metric:"try_errors_total" label:"reason" help:"Errors."`
		Pool    int64            `metric:"try_pool" compat:"redis_pool.cx_active,gauge" help:"Connections."`
		Version string           `metric:"try_info" label:"version" help:"Always 1."`
		Empty   string           `metric:"try_no_info" label:"version" help:"Left out, because it is empty."`
		Nil     *server
		Servers []server
		Labeled *server `labels:"store=main"`
		plain   int
	}
	m := New(Config{})
	m.Measure(func() any {
		return &all{
			Age: 1500 * time.Millisecond, At: time.Unix(7, 0), Unknown: -1, Errors: map[string]int64{"dial": 2},
			Pool:    3,
			Version: "v\xff", Servers: []server{{"a:1", true, 4, 5}}, Labeled: &server{Name: "b"}, plain: 6,
		}
	})
	var got []string
	for _, line := range scrape(t, m) {
		if strings.HasPrefix(line, "spillway_try_") {
			got = append(got, line)
		}
	}
	expectLine(t, scrape(t, m), "ratelimit_redis_pool_cx_active 3")
	want := []string{
		"spillway_try_age_seconds 1.5", "spillway_try_at_seconds 7",
		`spillway_try_calls_total{kind="cold",server="a:1"} 4`,
		`spillway_try_calls_total{kind="cold",server="b",store="main"} 0`,
		`spillway_try_calls_total{kind="hot",server="a:1"} 5`,
		`spillway_try_calls_total{kind="hot",server="b",store="main"} 0`, `spillway_try_errors_total{reason="dial"} 2`,
		`spillway_try_info{version="v_"} 1`, `spillway_try_open{server="a:1"} 1`,
		`spillway_try_open{server="b",store="main"} 0`,
		"spillway_try_pool 3",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%q, want\n%q", got, want)
	}
}
