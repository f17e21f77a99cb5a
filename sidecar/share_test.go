package sidecar

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestTheShareIsDividedByTheDomainsOwnSidecars: sidecars of other domains on the same Redis take nothing of this one's
// limits.
func TestTheShareIsDividedByTheDomainsOwnSidecars(t *testing.T) {
	redis := servers.StartRedis(t)
	const text = "domain: %s\ndescriptors:\n- key: user\n  rate_limit: { unit: year, requests_per_unit: 4 }\n"
	shops := []*running{
		begin(t, fmt.Sprintf(text, "shop"), "REDIS_URL="+redis.Addr),
		begin(t, fmt.Sprintf(text, "shop"), "REDIS_URL="+redis.Addr),
	}
	for _, other := range []string{"search", "mail", "search", "maps"} {
		begin(t, fmt.Sprintf(text, other), "REDIS_URL="+redis.Addr)
	}
	for _, want := range []string{"spillway_live_sidecars 6", `spillway_domain_sidecars{domain="shop"} 2`} {
		for _, s := range shops {
			servers.Await(t, want, func() error {
				if _, page := fetch(t, s.Addresses().Debug, "/metrics"); !strings.Contains(page, want) {
					return errors.New("the metrics do not have it")
				}
				return nil
			})
		}
	}
	redis.Kill(t)
	for _, s := range shops {
		expectCodes(t, dial(t, s.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
	}
}
