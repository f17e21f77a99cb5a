package sidecar

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkABlockOnEightSidecars measures how long it takes from the request of a block to its effect on the last of
// eight sidecars.
func BenchmarkABlockOnEightSidecars(b *testing.B) {
	redis := servers.StartRedis(b)
	var all []*running
	for range 8 {
		all = append(all, begin(b, fewPerHour, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s"))
	}
	var took []time.Duration
	for b.Loop() {
		user := fmt.Sprint("user-", len(took))
		for _, s := range all { // each has cached that a profile is missing
			if code, err := ask(dial(b, s.Addresses().GRPC), user); err != nil || code != codeOK {
				b.Fatalf("%s gets %v, %v", user, code, err)
			}
		}
		began := time.Now()
		all[0].operate(b, "/v1/block", fields{"user": user})
		for _, s := range all {
			conn := dial(b, s.Addresses().GRPC)
			servers.Await(b, "the block", func() error {
				code, err := ask(conn, user)
				if err == nil && code != codeOver {
					err = fmt.Errorf("%s gets %v", user, code)
				}
				return err
			})
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkExplain measures an explanation over HTTP, on a Redis.
func BenchmarkExplain(b *testing.B) {
	redis := servers.StartRedis(b)
	s := begin(b, operatedRules, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	request := fields{"rls": fields{"domain": "shop",
		"descriptors": []fields{
			{"entries": []fields{{"key": "user", "value": "alice"}, {"key": "path", "value": "/search"}}}}}}
	for b.Loop() {
		s.operate(b, "/v1/explain", request)
	}
}
