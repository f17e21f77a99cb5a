package telemetry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/sidecar/settings"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/store/denials"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/must"
)

// scrape returns the lines of /metrics that are not comments.
func scrape(t *testing.T, m *Telemetry) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("/metrics = %d %s", w.Code, w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func expectLine(t *testing.T, lines []string, want string) {
	t.Helper()
	name, _, _ := strings.Cut(want, " ")
	name, _, _ = strings.Cut(name, "{")
	var like []string
	for _, line := range lines {
		if line == want {
			return
		}
		if strings.HasPrefix(line, name) {
			like = append(like, line)
		}
	}
	t.Errorf("/metrics has no line %q, but %q", want, like)
}

func TestMetricsHaveTheReferenceServersNames(t *testing.T) {
	m := New(Config{})
	m.Count(m.Series("shop", []string{"user"}), Hit{Hits: 3, Charged: 3, Capacity: 3, Left: 3})
	m.Count(m.Series("shop", []string{"tenant", "api_export", "deep"}), Hit{Hits: 2, Capacity: 1, Left: 1, Charged: 1,
		Over: true, Shadow: true})
	m.Count(m.Series("shop", []string{"user"}), Hit{Hits: 1, Capacity: 3, Over: true, Cached: true})
	m.Loaded("abc", time.Unix(1000, 0))
	m.LoadFailed()
	m.StoreAway()
	m.Decided(m.Rule("", "", ""), engine.Unknown)
	m.Decided(m.Rule("shop", "user", "descriptor"), engine.Shadowed)
	lines := scrape(t, m)
	for _, want := range []string{
		`ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 4`,
		`ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"} 3`,
		`ratelimit_service_rate_limit_near_limit{domain="shop",key1="user"} 1`,
		`ratelimit_service_rate_limit_over_limit{domain="shop",key1="tenant",key2="api_export"} 1`,
		`ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="tenant",key2="api_export"} 1`,
		`ratelimit_service_rate_limit_over_limit_with_local_cache{domain="shop",key1="user"} 1`,
		`ratelimit_service_rate_limit_domain_not_found 1`,
		`ratelimit_service_global_shadow_mode 1`,
		`ratelimit_service_config_load_success 1`,
		`ratelimit_service_config_load_error 1`,
		`ratelimit_service_should_rate_limit_error{err_type="redis_error"} 1`,
	} {
		expectLine(t, lines, want)
	}
}

func TestMetricsOfOurOwn(t *testing.T) {
	m := New(Config{Version: "v1", Labels: map[string]string{"zone": "a"}})
	rule := m.Rule("shop", "per-user", "user")
	m.Degraded(rule, "timeout")
	m.StoreFailed("timeout")
	m.Panicked()
	m.totals.Bad.Add(2)
	m.Decided(rule, engine.Refused)
	m.Loaded("abc", time.Unix(1000, 0))
	m.Loaded("abc", time.Unix(1000, 0))
	m.StoreCalled("", true, 60*time.Microsecond)
	m.StoreCalled("dial", true, time.Second)
	m.StoreCalled("breaker", false, 0)
	m.Measure(func() any {
		return struct {
			Memory *memory.Stats `labels:"store=main"`
		}{&memory.Stats{Keys: 5, Evicted: 6}}
	})
	m.Measure(func() any {
		guard := breaker.Stats{State: breaker.Open, Opened: 11, HalfOpened: 12, Closed: 13, Rejected: 14}
		return store.RedisStats{
			Calls: store.CallStats{Sent: 7}, Denials: denials.Stats{Hits: 8, Questions: 11, Entries: 9},
			Redis:   redis.Stats{Connections: 10},
			Servers: []store.ServerStats{{Name: "a:1", Breaker: guard}},
		}
	})
	lines := scrape(t, m)
	for _, want := range []string{
		`spillway_degraded_decisions_total{domain="shop",reason="timeout",rule="per-user",zone="a"} 1`,
		`spillway_store_errors_total{reason="timeout",zone="a"} 1`,
		`spillway_panics_total{zone="a"} 1`,
		`spillway_bad_overrides_total{zone="a"} 2`,
		`spillway_decisions_total{domain="shop",outcome="refused",rule="per-user",scope="user",zone="a"} 1`,
		`spillway_config_generation{zone="a"} 2`,
		`spillway_store_calls_total{outcome="ok",zone="a"} 1`,
		`spillway_store_calls_total{outcome="dial",zone="a"} 1`,
		`spillway_store_calls_total{outcome="breaker",zone="a"} 1`,
		`spillway_store_call_seconds_bucket{zone="a",le="0.0001"} 1`,
		`spillway_store_call_seconds_count{zone="a"} 2`,
		`spillway_config_info{hash="abc",zone="a"} 1`,
		`spillway_config_last_success_timestamp_seconds{zone="a"} 1000`,
		`spillway_config_last_load_successful{zone="a"} 1`,
		`spillway_memory_keys{store="main",zone="a"} 5`,
		`spillway_memory_evicted_total{store="main",zone="a"} 6`,
		`spillway_redis_requests_total{zone="a"} 7`,
		`spillway_denial_cache_hits_total{zone="a"} 8`,
		`spillway_denial_cache_entries{zone="a"} 9`,
		`spillway_denial_cache_questions_total{zone="a"} 11`,
		`spillway_redis_connections{zone="a"} 10`,
		`spillway_breaker_state{shard="a:1",zone="a"} 2`,
		`spillway_breaker_transitions_total{shard="a:1",to="open",zone="a"} 11`,
		`spillway_breaker_transitions_total{shard="a:1",to="half_open",zone="a"} 12`,
		`spillway_breaker_transitions_total{shard="a:1",to="closed",zone="a"} 13`,
		`spillway_breaker_rejected_total{shard="a:1",zone="a"} 14`,
	} {
		expectLine(t, lines, want)
	}
}

func TestTextHasTheServicesCountersAndNotTheRuntimes(t *testing.T) {
	m := New(Config{})
	m.Count(m.Series("shop", []string{"user"}), Hit{Hits: 3})
	var b strings.Builder
	must.Do(t, m.Text(&b))
	if want := `ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"} 3` +
		"\n"; !strings.Contains(b.String(), want) {
		t.Errorf("the text lacks %q:\n%s", want, b.String())
	}
	if strings.Contains(b.String(), "go_goroutines") {
		t.Errorf("the text holds the Go runtime's numbers:\n%s", b.String())
	}
}

const should = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// call runs one unary call through the interceptor.
func call(m *Telemetry, method string, handler grpc.UnaryHandler) (any, error) {
	i := m.Unary(GRPC{Methods: []string{should}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	return i(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: method}, handler)
}

func TestCallsAreCountedAndTimed(t *testing.T) {
	m := New(Config{})
	for range 3 {
		call(m, should, func(context.Context, any) (any, error) { return "ok", nil })
	}
	call(m, should, func(context.Context, any) (any, error) { return nil, errors.New("undecodable") })
	lines := scrape(t, m)
	expectLine(t, lines, `ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 4`)
	expectLine(t, lines, `ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 4`)
	expectLine(t, lines, `ratelimit_service_should_rate_limit_error{err_type="service_error"} 1`)
}

func TestBucketsBeginAtFiftyMicroseconds(t *testing.T) {
	m := New(Config{})
	call(m, should, func(context.Context, any) (any, error) { return "ok", nil })
	for _, line := range scrape(t, m) {
		if strings.HasPrefix(line, `ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",`+
			`le="5e-05"}`) {
			return
		}
	}
	t.Error("the first bucket of the response time is not 50 µs")
}

func TestAPanicInAnotherMethodFailsTheCall(t *testing.T) {
	m := New(Config{})
	_, err := call(m, "/grpc.health.v1.Health/Check", func(context.Context, any) (any, error) { panic("oh") })
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic in health gives %v, want code Internal", err)
	}
	expectLine(t, scrape(t, m), "spillway_panics_total 1")
}

func TestAPanicInAStreamFailsTheCall(t *testing.T) {
	m := New(Config{})
	i := m.Stream(slog.New(slog.NewTextHandler(io.Discard, nil)))
	err := i(nil, nil, &grpc.StreamServerInfo{FullMethod: "/x/y"}, func(any, grpc.ServerStream) error { panic("oh") })
	if status.Code(err) != codes.Internal {
		t.Errorf("a panic in a stream gives %v, want code Internal", err)
	}
}

func TestTheListOfLabelsIsWhole(t *testing.T) {
	m := New(Config{})
	m.Count(m.Series("shop", []string{"a", "b"}), Hit{Hits: 1})
	m.Degraded(m.Rule("shop", "rule", "user"), "reason")
	m.Decided(m.Rule("shop", "rule", "user"), engine.Allowed)
	m.StoreFailed("reason")
	m.StoreAway()
	m.Loaded("abc", time.Unix(0, 0))
	m.Measure(func() any { return memory.Stats{} })
	m.Measure(func() any { return store.RedisStats{Servers: []store.ServerStats{{Name: "a"}}} })
	m.Measure(func() any { return journal.Stats{} })
	call(m, should, func(context.Context, any) (any, error) { return "ok", nil })
	families := must.Get(m.registry.Gather())(t)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			for _, label := range metric.GetLabel() {
				if !slices.Contains(settings.MetricLabels, label.GetName()) {
					t.Errorf("%s has the label %s, which settings.MetricLabels lacks", f.GetName(), label.GetName())
				}
			}
		}
	}
}

func TestEveryMetricIsInTheReference(t *testing.T) {
	page := must.Get(os.ReadFile("../docs/reference/metrics.md"))(t)
	m := New(Config{})
	s := idle(m, StatsdConfig{Address: "127.0.0.1:1"})
	defer s.Close(t.Context())
	described := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(described)
	close(described)
	named := regexp.MustCompile(`fqName: "((?:spillway|ratelimit)_\w+)"`)
	count := 0
	for d := range described {
		if found := named.FindStringSubmatch(d.String()); found != nil {
			count++
			if !strings.Contains(string(page), "`"+found[1]+"`") {
				t.Errorf("docs/reference/metrics.md lacks %s: give it a value in the test that writes the page",
					found[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d metrics were found", count)
	}
}
