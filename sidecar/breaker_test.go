package sidecar

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestABreakerIsSeenToOpenAndToClose(t *testing.T) {
	redis := servers.StartRedis(t)
	// It stays open for so long that a busy machine sees it.
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
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_transitions_total{shard="`+redis.Addr+
		`",to="open"} 1`)
	metrics := must.Get(servers.Scrape(s.Addresses().Debug))(t)
	rejected, degraded := metrics.Sum("spillway_breaker_rejected_total"),
		metrics.Sum("spillway_degraded_decisions_total", `reason="breaker"`)
	if degraded < 1 || rejected < degraded {
		t.Errorf("%d calls rejected by the breaker and %d decisions degraded by it, want at least one of each",
			rejected, degraded)
	}
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, ", breaker open")
	s.awaitLog(t, "the breaker to redis is open")
	redis.Start(t)
	servers.Await(t, "a breaker that closes under traffic", func() error {
		_, err := ask(client, "carol")
		return errors.Join(err, s.logs("the breaker to redis is closed"))
	})
	servers.Await(t, "the end of what was degraded", func() error {
		_, body := fetch(t, s.Addresses().HTTP, "/readyz")
		if strings.Contains(body, "breaker") {
			return errors.New(body)
		}
		return nil
	})
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_transitions_total{shard="`+redis.Addr+
		`",to="closed"} 1`)
}

// openPerHour are rules that admit while Redis is away.
const openPerHour = `
domain: shop
descriptors:
  - key: user
    on_failure: open
    rate_limit: {unit: hour, requests_per_unit: 2}
`

// TestBreakerSettingsAct: a server that refuses connections opens the breaker with exactly the call that the settings
// name.
func TestBreakerSettingsAct(t *testing.T) {
	const calls = 4
	shard := servers.FreeAddr(t)
	s := begin(t, openPerHour, "BREAKER_FAILURES=4", "REDIS_URL="+shard, "STORE_SILENCE=1s", "STORE_PATIENCE=2s",
		"BREAKER_OPEN=1h")
	client := dial(t, s.Addresses().GRPC)
	for call := range calls {
		expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_state{shard="`+shard+`"} 0`)
		if _, err := ask(client, "alice"); err != nil {
			t.Fatalf("call %d: %v", call+1, err)
		}
	}
	expectPage(t, s.Addresses().Debug, "/metrics", 200, `spillway_breaker_state{shard="`+shard+`"} 2`)
	s.awaitLog(t, "the breaker to redis is open")
}

func TestBreakerSettingsReachTheBreaker(t *testing.T) {
	cfg := fromEnv(t, "BREAKER_FAILURES=7", "BREAKER_OPEN=2s", "BREAKER_PROBES=5")
	want := breaker.Config{Failures: 7, Open: 2 * time.Second, Probes: 5}
	if got := breakerConfig(cfg.Breaker); got.Failures != want.Failures || got.Open != want.Open ||
		got.Probes != want.Probes {
		t.Errorf("%+v, want %+v", got, want)
	}
}
