package integration

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// policies has one leaf for each failure policy, behind the example's /partners.
const policies = `
domain: partners
descriptors:
  - key: partners
    value: all
    on_failure: open
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: partners
    value: one
    descriptors:
      - {key: user, value: closed, on_failure: closed, rate_limit: {unit: day, requests_per_unit: 1000}}
      - {key: user, value: local, on_failure: local, rate_limit: {unit: day, requests_per_unit: 2}}
`

func TestDeadSidecarFailsOpen(t *testing.T) {
	w := start(t, setup{})
	w.wants(t, 1, http.StatusOK, "/", "x-user", "before").remaining(t, "9")
	w.sidecar.End(t)
	w.wants(t, 20, http.StatusOK, "/", "x-user", "before").unlimited(t)
	if n := w.envoy.Stat(t, "cluster.app.ratelimit.failure_mode_allowed"); n != 20 {
		t.Errorf("failure_mode_allowed is %d after 20 requests without a sidecar", n)
	}
}

func TestSlowSidecarFailsOpenAfterTheTimeout(t *testing.T) {
	w := start(t, setup{timeout: "0.25s"})
	w.wants(t, 1, http.StatusOK, "/", "x-user", "before")
	before := w.envoy.Stat(t, "cluster.app.ratelimit.failure_mode_allowed")
	w.sidecar.Hang(t)
	begun := time.Now()
	w.wants(t, 1, http.StatusOK, "/", "x-user", "during").unlimited(t)
	if took := time.Since(begun); took < 200*time.Millisecond { // without the timeout it would never be answered
		t.Errorf("a request took %v beside a hanging sidecar, want the filter's 250 ms", took)
	}
	if n := w.envoy.Stat(t, "cluster.app.ratelimit.failure_mode_allowed") - before; n != 1 {
		t.Errorf("failure_mode_allowed is %d after one request beside a hanging sidecar", n)
	}
	w.sidecar.Send(t, syscall.SIGCONT)
	servers.Await(t, "limits after the sidecar woke", func() error {
		return w.limited("/", "x-user", "after")
	})
}

func TestDeadRedisIsAnsweredByPolicy(t *testing.T) {
	w := start(t, setup{rules: map[string]string{"partners.yaml": policies}})
	w.noErrors(t, "policies", func(t *testing.T) {
		w.wants(t, 1, http.StatusOK, "/partners", "x-user", "local")
		w.redis.Kill(t)
		w.degraded(t)
	})
}

func TestRedisDecidesAgainAfterItsReturn(t *testing.T) {
	w := start(t, setup{})
	w.noErrors(t, "return", func(t *testing.T) {
		w.redis.Kill(t)
		w.get(t, "/away", "x-user", "patient")
		if line := w.logged(t, "/away"); !strings.Contains(line, `"degraded":"`) {
			t.Errorf("the access log does not say that the decision was degraded: %s", line)
		}
		w.redis.Start(t)
		w.awaitRedis(t)
	})
}

// The caller's deadline comes before the sidecar's own patience: an answer that is late is an answer that Envoy never
// sees.
func TestAnswerLeavesBeforeTheDeadline(t *testing.T) {
	w := start(t, setup{timeout: "30s", env: []string{"STORE_SILENCE=60s", "STORE_PATIENCE=60s"}})
	w.noErrors(t, "deadline", func(t *testing.T) {
		w.wants(t, 1, http.StatusOK, "/", "x-user", "before").remaining(t, "9")
		w.redis.Hang(t)
		w.get(t, "/late", "x-user", "late")
		if line := w.logged(t, "/late"); !strings.Contains(line, `"degraded":"`) {
			t.Errorf("the access log does not say that the decision was degraded: %s", line)
		}
	})
}

func TestHangingRedisIsAnsweredByPolicy(t *testing.T) {
	// The patience is short here, because it is the point.
	w := start(t, setup{rules: map[string]string{"partners.yaml": policies}, env: []string{"STORE_PATIENCE=20ms"}})
	w.noErrors(t, "policies", func(t *testing.T) {
		w.redis.Hang(t)
		w.degraded(t)
		w.wants(t, 1, http.StatusOK, "/still", "x-user", "quick")
		if line := w.logged(t, "/still"); !strings.Contains(line, `"degraded":"`) {
			t.Errorf("the access log does not say that the decision was degraded: %s", line)
		}
	})
	err := w.redis.Signal(syscall.SIGCONT)
	if err != nil {
		t.Fatalf("wake Redis: %v", err)
	}
	w.awaitRedis(t)
}

// awaitRedis waits until Redis decides again.
func (w *world) awaitRedis(t *testing.T) {
	t.Helper()
	tries := 0
	servers.Await(t, "decisions by Redis", func() error {
		tries++
		path := fmt.Sprintf("/try-%d", tries)
		w.get(t, path, "x-user", "patient")
		if line := w.logged(t, path); strings.Contains(line, "degraded") {
			return errors.New(line)
		}
		return nil
	})
}

// degraded checks what each policy answers while Redis does not.
func (w *world) degraded(t *testing.T) {
	t.Helper()
	w.wants(t, 3, http.StatusOK, "/partners", "x-user", "open-only")
	got := w.wants(t, 1, http.StatusTooManyRequests, "/partners", "x-user", "closed")
	between(t, got, "retry-after", 1, 1)
	// The sidecar's own memory refuses after two: a lost store does not mean a lost limit.
	w.refusedWithin(t, 3, "/partners", "x-user", "local")
	w.refusedWithin(t, 21, "/", "x-user", "degraded")
	w.get(t, "/told", "x-user", "told")
	if line := w.logged(t, "/told"); !strings.Contains(line, `"degraded":"`) {
		t.Errorf("the access log does not say that the decision was degraded: %s", line)
	}
}
