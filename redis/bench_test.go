package redis_test

import (
	"fmt"
	"testing"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkRequests is one caller, and 64 at once.
func BenchmarkRequests(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			c := open(b, at(redis.Single, servers.StartRedis(b).Addr))
			var all []*redis.Pending
			for i := range callers {
				all = append(all, add(fmt.Sprint("key", i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, p := range all {
					c.Server(p.Keys[0]).Do(p)
				}
				for _, p := range all {
					<-p.Done()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*callers), "ns/request")
		})
	}
}
