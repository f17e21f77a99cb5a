package sidecar

import (
	"testing"

	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkOneDecision decides requests in wire bytes, one after the other. tools/path lists the functions they pass.
func BenchmarkOneDecision(b *testing.B) {
	request, err := proto.Marshal(limited("shop", "user"))
	if err != nil {
		b.Fatal(err)
	}
	for name, leases := range map[string]string{"redis": "false", "lease": "true"} {
		b.Run(name, func(b *testing.B) {
			s := begin(b, budgetRules, "REDIS_URL="+servers.StartRedis(b).Addr, "LEASES="+leases)
			answer, wire := new(ratelimitv3.RateLimitResponse), []byte(nil)
			for b.Loop() {
				wire, err = s.ShouldRateLimit(b.Context(), request, wire[:0])
				if err != nil {
					b.Fatal(err)
				}
			}
			if err := proto.Unmarshal(wire, answer); err != nil || answer.GetOverallCode() != codeOK {
				b.Errorf("the last answer is %v, %v, want it admitted", answer, err)
			}
		})
	}
}
