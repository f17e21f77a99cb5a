package sidecar

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestTheShareIsDividedByTheDomainsOwnSidecars: sidecars of other domains on the same Redis take nothing of this one's limits.
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

// TestTheShareBeginsWithWhatWasHeld: what requests spent of tokens that the sidecar held is spent when Redis is away.
func TestTheShareBeginsWithWhatWasHeld(t *testing.T) {
	const count = 40_000
	redis := servers.StartRedis(t)
	s := begin(t, fmt.Sprintf("domain: shop\ndescriptors:\n- key: user\n  rate_limit: { unit: year, requests_per_unit: %d }\n", count), "REDIS_URL="+redis.Addr)
	var admitted, held atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var v engine.Verdict
			req := descriptors.Request{Domain: "shop", Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "alice"}}}}}
			for {
				s.engine.Decide(t.Context(), &req, &v)
				if v.Outcome().Refuses() {
					return
				}
				admitted.Add(1)
				if v.Decisions[0].Held {
					held.Add(1)
				}
			}
		})
	}
	servers.Await(t, "decisions by what is held", func() error {
		if n := held.Load(); n < count/20 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	redis.Kill(t)
	all.Wait()
	if n := admitted.Load(); n != count {
		t.Errorf("%d requests were admitted, %d of them by what was held, want %d", n, held.Load(), count)
	}
}
