package sidecar

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestABreakerIsSeenToOpenAndToClose(t *testing.T) {
	redis := servers.StartRedis(t)
	// It stays open for so long that a busy machine sees it; a connection that is made again shortens that.
	s := begin(t, twoPerYear, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s", "BREAKER_OPEN=8s")
	client := dial(t, s.Addresses().GRPC)
	expectCodes(t, client, "alice", codeOK)
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_state{shard="`+redis.Addr+`"} 0`)
	redis.Kill(t)
	expectCodes(t, client, "bob", codeOK, codeOK, codeOver)
	servers.Await(t, "an open breaker", func() error {
		expectCodes(t, client, "bob", codeOver)
		_, body := fetch(t, s.Addresses().Debug, "/metrics")
		if !strings.Contains(body, `spillway_breaker_state{shard="`+redis.Addr+`"} 2`) {
			return errors.New("it is not open")
		}
		return nil
	})
	expectCodes(t, client, "bob", codeOver)
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_transitions_total{shard="`+redis.Addr+`",to="open"} 1`)
	metrics, err := servers.Scrape(s.Addresses().Debug)
	if err != nil {
		t.Fatal(err)
	}
	// What is owed is offered to the store as well, so there may be more calls than requests.
	rejected, degraded := metrics.Sum("spillway_breaker_rejected_total", `reason="open"`), metrics.Sum("spillway_degraded_decisions_total", `reason="breaker"`)
	if degraded < 1 || rejected < degraded {
		t.Errorf("%d calls rejected by the breaker and %d decisions degraded by it, want at least one of each", rejected, degraded)
	}
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, ", breaker open")
	s.awaitLog(t, "the breaker to redis is open: "+breaker.ReasonConsecutive)
	redis.Start(t)
	servers.Await(t, "a breaker that closes under traffic", func() error {
		_, err := ask(client, "carol")
		return errors.Join(err, s.logs("the breaker to redis is closed: "+breaker.ReasonRecovered))
	})
	servers.Await(t, "the end of what was degraded", func() error {
		_, body := fetch(t, s.Addresses().HTTP, "/readyz")
		if strings.Contains(body, "breaker") {
			return errors.New(body)
		}
		return nil
	})
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_transitions_total{shard="`+redis.Addr+`",to="closed"} 1`)
}

// openPerHour owes the store nothing while it is away, so no call is made but those of requests.
const openPerHour = `
domain: shop
descriptors:
  - key: user
    on_failure: open
    rate_limit: {unit: hour, requests_per_unit: 2}
`

// TestBreakerSettingsAct: a server that refuses connections opens the breaker with exactly the call that the settings name.
func TestBreakerSettingsAct(t *testing.T) {
	for name, step := range map[string]struct {
		environ []string
		calls   int
		reason  string
	}{
		"in a row": {[]string{"BREAKER_FAILURES=2"}, 2, breaker.ReasonConsecutive},
		"ratio":    {[]string{"BREAKER_FAILURES=1000", "BREAKER_RATIO=1", "BREAKER_MIN_CALLS=7", "BREAKER_WINDOW=1h"}, 7, breaker.ReasonRatio},
	} {
		t.Run(name, func(t *testing.T) {
			shard := servers.FreeAddr(t)
			s := begin(t, openPerHour, append(step.environ, "REDIS_URL="+shard, "STORE_SILENCE=1s", "STORE_PATIENCE=2s", "BREAKER_OPEN=1h")...)
			client := dial(t, s.Addresses().GRPC)
			for call := range step.calls {
				expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_state{shard="`+shard+`"} 0`)
				if _, err := ask(client, "alice"); err != nil {
					t.Fatalf("call %d: %v", call+1, err)
				}
			}
			expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_state{shard="`+shard+`"} 2`)
			s.awaitLog(t, "the breaker to redis is open: "+step.reason)
		})
	}
}

func TestBreakerSettingsReachTheBreaker(t *testing.T) {
	cfg := fromEnv(t,
		"BREAKER_FAILURES=7", "BREAKER_RATIO=0.25", "BREAKER_MIN_CALLS=50", "BREAKER_WINDOW=10s", "BREAKER_OPEN=2s", "BREAKER_PROBES=1",
	)
	want := breaker.Config{
		Consecutive: 7, Ratio: 0.25, MinCalls: 50, Window: 10 * time.Second, Open: 2 * time.Second, MaxOpen: 3 * time.Second, Probes: 1,
	}
	if diff := cmp.Diff(want, breakerConfig(cfg.Breaker)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
