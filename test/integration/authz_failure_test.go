package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// authzPolicies has one rule for each failure policy, behind the example's /partners.
const authzPolicies = `
domain: partners
rules:
  - { name: opens, scope: endpoint, match: { endpoints: ["/partners/open"] }, limit: 1/24h, on_failure: open }
  - { name: closes, scope: endpoint, match: { endpoints: ["/partners/closed"] }, limit: 1000/24h, on_failure: closed }
  - { name: stays, scope: endpoint, match: { endpoints: ["/partners/local", "/partners/told"] }, limit: 2/24h }
`

// Without Spillway nothing passes but the routes that never ask.
func TestAuthzDeadSidecarFailsClosed(t *testing.T) {
	w := startAuthz(t, authzSetup{memory: true})
	w.wants(t, 1, http.StatusOK, "/", "x-api-key", demoKey).has(t, "x-ratelimit-remaining", "19")
	w.sidecar.End(t)
	reached := w.app.Hits()
	w.wants(t, 5, http.StatusServiceUnavailable, "/", "x-api-key", demoKey).unlimited(t)
	if w.app.Hits() != reached {
		t.Error("a request reached the application without a decision")
	}
	w.wants(t, 5, http.StatusOK, "/healthz")
	if n := w.envoy.Stat(t, "http.ingress.ext_authz.error"); n != 5 {
		t.Errorf("ext_authz.error is %d after 5 requests without a sidecar", n)
	}
}

func TestAuthzDeadSidecarFailsOpenWhenAsked(t *testing.T) {
	w := startAuthz(t,
		authzSetup{memory: true, swaps: [][2]string{{"failure_mode_allow: false", "failure_mode_allow: true"}}})
	w.wants(t, 1, http.StatusOK, "/", "x-api-key", demoKey).has(t, "x-ratelimit-remaining", "19")
	w.sidecar.End(t)
	w.wants(t, 30, http.StatusOK, "/", "x-api-key", demoKey).unlimited(t)
	if n := w.envoy.Stat(t, "http.ingress.ext_authz.failure_mode_allowed"); n != 30 {
		t.Errorf("failure_mode_allowed is %d after 30 requests without a sidecar", n)
	}
}

// A lost Redis is not a reason for Envoy's failure mode: the rules decide.
func TestAuthzDeadRedisIsAnsweredByPolicy(t *testing.T) {
	w := startAuthz(t, authzSetup{rules: map[string]string{"partners.yaml": authzPolicies}})
	w.clean(t, "policies", func(t *testing.T) {
		w.wants(t, 1, http.StatusOK, "/partners/open")
		w.wants(t, 1, http.StatusOK, "/partners/closed")
		w.redis.Kill(t)
		w.wants(t, 3, http.StatusOK, "/partners/open")
		got := w.wants(t, 1, http.StatusTooManyRequests, "/partners/closed")
		got.has(t, "retry-after", "1")
		w.refusedWithin(t, 3, "/partners/local")
		w.get(t, "/partners/told")
		if line := w.logged(t, "/partners/told"); !strings.Contains(line, `"degraded":"`) {
			t.Errorf("the access log does not say that the decision was degraded: %s", line)
		}
	})
	w.clean(t, "return", func(t *testing.T) {
		w.redis.Start(t)
		servers.Await(t, "decisions by Redis", func() error {
			got, err := w.try("/partners/closed")
			if err == nil && got.status != http.StatusOK {
				err = fmt.Errorf("answered with %d", got.status)
			}
			return err
		})
	})
}

// The answers come while Redis still hangs, and before the filter's own timeout.
func TestAuthzHangingRedisIsAnsweredInTime(t *testing.T) {
	w := startAuthz(t, authzSetup{rules: map[string]string{"partners.yaml": authzPolicies},
		env: []string{"STORE_PATIENCE=20ms"}})
	w.clean(t, "hanging", func(t *testing.T) {
		w.redis.Hang(t)
		w.wants(t, 1, http.StatusOK, "/partners/open")
		w.wants(t, 1, http.StatusTooManyRequests, "/partners/closed")
		w.refusedWithin(t, 3, "/partners/local")
	})
}

// Both filters on one request, each with rules of its own: a refusal by the first leaves the second uncharged.
func TestBothFiltersAtOnce(t *testing.T) {
	w := startAuthz(t, authzSetup{})
	inside(t, 5*time.Minute)
	w.clean(t, "the second refuses", func(t *testing.T) {
		w.wants(t, 2, http.StatusOK, "/export", "x-api-key", demoKey, "x-user", "both").has(t, "x-ratelimit-limit",
			"20")
		got := w.wants(t, 1, http.StatusTooManyRequests, "/export", "x-api-key", demoKey, "x-user", "both")
		got.has(t, "x-envoy-ratelimited", "true")
		got.has(t, "x-ratelimit-limit", "20") // ext_authz's word overwrites that of the other filter
	})
	w.clean(t, "the first refuses", func(t *testing.T) {
		w.wants(t, 5, http.StatusOK, "/", "x-api-key", ciKey)
		got := w.wants(t, 3, http.StatusTooManyRequests, "/export", "x-api-key", ciKey, "x-user", "first")
		if got.header.Get("x-envoy-ratelimited") != "" {
			t.Errorf("the rate limit filter was asked after ext_authz had refused: %v", got.header)
		}
		if left := w.peek(t, "edge", "export", "any", "user", "first"); left.LimitRemaining != 2 {
			t.Errorf("%d of 2 are left of a limit that no request came to", left.LimitRemaining)
		}
	})
}

// A rule of scope user is one counter, whichever door asks.
func TestBothDoorsSpendFromOneCounter(t *testing.T) {
	onEachStore(t, authzSetup{}, func(t *testing.T, w *world) {
		w.clean(t, "one counter", func(t *testing.T) {
			w.wants(t, 6, http.StatusOK, "/", "x-api-key", demoKey)
			w.wants(t, 6, http.StatusOK, "/internal", "x-user", "alice")
			w.wants(t, 6, http.StatusOK, "/", "x-api-key", demoKey)
			// The bucket of 20 gets one back every three seconds, so it may hold a few more than 2 by now.
			left := w.refusedAfter(t, "/internal", "x-user", "alice")
			if left < 2 || left > 6 {
				t.Errorf("%d more passed after 18 of 20 through both doors", left)
			}
			w.refusedWithin(t, 2, "/", "x-api-key", demoKey)
			w.wants(t, 1, http.StatusOK, "/internal", "x-user", "bob").remaining(t, "19")
		})
	})
}

// refusedAfter is how many requests pass before one is refused.
func (w *world) refusedAfter(t *testing.T, path string, headers ...string) int {
	t.Helper()
	for n := range 50 {
		if w.get(t, path, headers...).status == http.StatusTooManyRequests {
			return n
		}
	}
	t.Fatalf("none of 50 requests to %s was refused", path)
	return 0
}
