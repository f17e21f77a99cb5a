//go:build full

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

const (
	domain = "load"
	// window is that of all limits: no window ends, and no token comes back, while a test runs.
	window = "365d"
	// sidecarCount is how many sidecars share a Redis.
	sidecarCount = 2
)

// algorithms are all that a rule may name.
var algorithms = []string{"token_bucket", "sliding_window", "fixed_window", "sliding_log"}

// perUser is a rule file with one limit for every user.
func perUser(count int, algorithm string) string {
	return fmt.Sprintf("domain: %s\nrules:\n  - { name: each, scope: user, limits: [{ count: %d, per: %s, "+
		"algorithm: %s }] }\n", domain, count, window, algorithm)
}

// sidecars share a store.
type sidecars []*servers.Sidecar

// launch starts sidecars on a rule file, each with its environment, and does not wait for them.
func launch(t testing.TB, rules string, env func(i int) []string) sidecars {
	t.Helper()
	servers.SidecarBin(t)
	file := filepath.Join(t.TempDir(), "load.yaml")
	err := os.WriteFile(file, []byte(rules), 0o600)
	if err != nil {
		t.Fatalf("write the rules: %v", err)
	}
	var all sidecars
	for i := range sidecarCount {
		all = append(all, servers.LaunchSidecar(t, append([]string{"RULES=" + file}, env(i)...)...))
	}
	return all
}

// ready waits until all sidecars are.
func (f sidecars) ready(t testing.TB) {
	t.Helper()
	for _, s := range f {
		servers.Await(t, "the sidecar's readiness", s.Ready)
	}
}

// begin starts sidecars on a Redis and waits until they are ready.
func begin(t testing.TB, redis *servers.Redis, rules string) sidecars {
	t.Helper()
	f := launch(t, rules, func(int) []string { return []string{"REDIS_URL=" + redis.Addr} })
	f.ready(t)
	return f
}

// callers makes so many of them, spread evenly over the sidecars and connected.
func (f sidecars) callers(t testing.TB, n int) []*caller {
	t.Helper()
	var all []*caller
	for i := range n {
		c := dial(t, f[i%len(f)].GRPC)
		c.connect(t)
		all = append(all, c)
	}
	return all
}

// byRedis fails unless Redis made every decision, and reports what the metrics show otherwise.
func (f sidecars) byRedis(t testing.TB, got *tally) {
	t.Helper()
	if len(got.failed) > 0 {
		t.Errorf("calls failed: %v", got.failed)
	}
	if len(got.degraded) > 0 {
		t.Errorf("%d of %d answers were made without Redis, by reason: %v", sum(got.degraded), sum(got.asked),
			got.degraded)
	}
	for i, s := range f {
		m, err := servers.Scrape(s.Debug)
		if err != nil {
			t.Fatalf("read the metrics of sidecar %d: %v", i+1, err)
		}
		if n := m.Sum("spillway_panics_total"); n > 0 {
			servers.Wrong(t, "sidecar %d: %d panics", i+1, n)
		}
		broken := unhealthy(m)
		for _, text := range broken {
			t.Errorf("sidecar %d: %s", i+1, text)
		}
		if len(broken) > 0 {
			t.Logf("sidecar %d: %s", i+1, evidence(m))
		}
	}
	t.Log(got)
}

// unhealthy lists what a sidecar whose Redis is well must not count.
func unhealthy(m servers.Metrics) (broken []string) {
	if reasons := m.By("spillway_degraded_decisions_total", "reason"); len(reasons) > 0 {
		broken = append(broken, fmt.Sprintf("decisions were made without Redis, by reason: %v", reasons))
	}
	if n := m.Sum("spillway_breaker_transitions_total", `to="open"`); n > 0 {
		broken = append(broken, fmt.Sprintf("the breaker opened %d times", n))
	}
	if state := m.Most("spillway_breaker_state"); state != 0 {
		broken = append(broken, fmt.Sprintf("the breaker's state is %v, want 0 (closed)", state))
	}
	if n := m.Sum("spillway_over_admitted_total"); n > 0 {
		broken = append(broken, fmt.Sprintf("%d hits were admitted over the limit", n))
	}
	return broken
}

// evidence is what helps to find out why a sidecar decided without Redis.
func evidence(m servers.Metrics) string {
	lines := []string{
		fmt.Sprintf("store errors by reason %v", m.By("spillway_store_errors_total", "reason")),
		fmt.Sprintf("store calls by outcome %v", m.By("spillway_store_calls_total", "outcome")),
		fmt.Sprintf("breaker rejected %d", m.Sum("spillway_breaker_rejected_total")),
	}
	for _, name := range []string{"spillway_redis_requests_total", "spillway_redis_undecided_total",
		"spillway_redis_unknown_total", "spillway_redis_connections", "spillway_redis_in_flight"} {
		lines = append(lines, fmt.Sprintf("%s %d", name, m.Sum(name)))
	}
	return strings.Join(lines, "; ")
}

// exactly fails unless each user was admitted as often as asked, and at most up to the limit.
func exactly(t testing.TB, got *tally, limit int) {
	t.Helper()
	within(t, got, limit, 0)
}

// within is exactly, where so many tokens of each user may be refused because another sidecar has them on lease.
func within(t testing.TB, got *tally, limit, lent int) {
	t.Helper()
	over, under, fails := 0, 0, t.Errorf
	if len(got.degraded) == 0 && len(got.failed) == 0 { // Redis decided all, however slow the machine was
		fails = func(format string, args ...any) { servers.Wrong(t, format, args...) }
	}
	for user, asked := range got.asked {
		more := got.admitted[user] - min(asked, limit)
		over += max(0, more)
		under += max(0, -more-lent)
	}
	if over > 0 || under > 0 {
		fails("%d admitted of %d asked by %d users with a limit of %d each: %d too many, %d too few",
			sum(got.admitted), sum(got.asked), len(got.asked), limit, over, under)
	}
}

// besideBusyLoops starts a busy loop for every processor. They end with the test.
func besideBusyLoops(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		servers.Child(t, "sh", "-c", "while :; do :; done")
	}
}

// row is a test on a Redis of its own.
type row func(t testing.TB, redis *servers.Redis)

// judge runs the row.
func (r row) judge(t *testing.T) {
	servers.Tries(t, func(t testing.TB) {
		redis := servers.StartRedis(t)
		r(t, redis)
	})
}

// conditions runs a row on the machine as it is, and beside a busy loop on every processor.
func conditions(t *testing.T, run row) {
	t.Helper()
	t.Run("as it is", run.judge)
	t.Run("beside busy loops", func(t *testing.T) {
		besideBusyLoops(t)
		run.judge(t)
	})
}
