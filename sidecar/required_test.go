package sidecar

import (
	"testing"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestRulesThatAreRequired: a pod with broken rules gets no traffic, and one whose rules break later keeps it.
func TestRulesThatAreRequired(t *testing.T) {
	s := begin(t, "domain: [broken", "RULES_REQUIRED=true")
	client := healthv1.NewHealthClient(dial(t, s.Addresses().GRPC))
	health := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range healthNames {
			got, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != want {
				t.Errorf("health of %q = %v, %v, want %v", name, got.GetStatus(), err, want)
			}
		}
	}
	health(healthv1.HealthCheckResponse_NOT_SERVING)
	expectPage(t, s.Addresses().HTTP, "/readyz", 503, "no good rules yet, and RULES_REQUIRED is set")
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 500, "")
	expectPage(t, s.Addresses().HTTP, "/livez", 200, "ok")
	s.awaitLog(t, `msg="serving, but not ready" reason="no good rules yet`)
	write(t, s.rules, twoPerYear)
	s.awaitLog(t, "ready: there are rules now")
	expectPage(t, s.Addresses().HTTP, "/readyz", 200, "ok\n")
	health(healthv1.HealthCheckResponse_SERVING)
	expectPage(t, s.Addresses().HTTP, "/healthcheck", 200, "OK")
	write(t, s.rules, "domain: [broken again")
	servers.Await(t, "the refused load", func() error {
		return readyz(t, s, "ok (degraded: rules: the newest load was refused")
	})
	health(healthv1.HealthCheckResponse_SERVING)
}
