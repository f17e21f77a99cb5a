package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// benchmarkSpend measures requests of n charges over many keys.
func benchmarkSpend(b *testing.B, s counter, n int) {
	const keys = 10_000
	requests := make([][]limit.Charge, keys)
	for i := range requests {
		for j := range n {
			requests[i] = append(requests[i], charge(b, fmt.Sprint(i, j), bucket(1_000_000, year), 1))
		}
	}
	decisions := make([]limit.Decision, n)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.Spend(context.Background(), requests[i%keys], decisions)
		i++
	}
}

func BenchmarkMemorySpend(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprint("charges=", n), func(b *testing.B) { benchmarkSpend(b, NewMemory(MemoryConfig{}), n) })
	}
}

// BenchmarkMemorySpendOfMany makes requests with four charges of 400,000 counters, as the engine does beside Redis.
func BenchmarkMemorySpendOfMany(b *testing.B) {
	const many = 100_000
	m, ctx := NewMemory(MemoryConfig{}), context.Background()
	charges, decisions := make([]limit.Charge, 4), make([]limit.Decision, 4)
	spend := func(next func() int) {
		for k := range charges {
			charges[k] = limit.Charge{Key: fmt.Sprint("counter ", k, " of ", next()), Limit: limit.Limit{Algorithm: limit.FixedWindow, Count: 1e9, Window: time.Hour}, Cost: 1, Class: uint32(k)}
		}
		m.Spend(ctx, charges, decisions)
	}
	for i := range many {
		spend(func() int { return i })
	}
	b.ReportAllocs()
	for b.Loop() {
		spend(func() int { return rand.IntN(many) })
	}
}

func BenchmarkMemorySpendParallel(b *testing.B) {
	m := NewMemory(MemoryConfig{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		charges := []limit.Charge{charge(b, "k", bucket(1_000_000_000, year), 1)}
		decisions := make([]limit.Decision, 1)
		for pb.Next() {
			m.Spend(context.Background(), charges, decisions)
		}
	})
}

// BenchmarkRedisSpend also reports the quantiles of one decision on a server of this machine, in µs.
func BenchmarkRedisSpend(b *testing.B) {
	server := servers.StartRedis(b)
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprint("charges=", n), func(b *testing.B) {
			benchmarkQuantiles(b, openRedis(b, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}}), n)
		})
	}
}

func benchmarkQuantiles(b *testing.B, s counter, n int) {
	var charges []limit.Charge
	for i := range n {
		charges = append(charges, charge(b, fmt.Sprint(i), bucket(1_000_000_000, time.Hour), 1))
	}
	decisions := make([]limit.Decision, n)
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		s.Spend(context.Background(), charges, decisions)
		took = append(took, time.Since(start))
		if decisions[0].Outcome != limit.Allowed {
			b.Fatalf("decision %+v, want allowed", decisions[0])
		}
	}
	slices.Sort(took)
	for _, q := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[len(took)*q/100].Nanoseconds())/1000, fmt.Sprintf("p%d-µs", q))
	}
}

// BenchmarkDenied measures a refusal that needs no server.
func BenchmarkDenied(b *testing.B) {
	server := servers.StartRedis(b)
	r := openRedis(b, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	charges := []limit.Charge{charge(b, "spent", bucket(1, time.Hour), 1)}
	decisions := make([]limit.Decision, 1)
	r.Spend(context.Background(), charges, decisions)
	b.ReportAllocs()
	for b.Loop() {
		r.Spend(context.Background(), charges, decisions)
	}
	if decisions[0].Outcome != limit.Refused {
		b.Fatalf("decision %+v, want refused", decisions[0])
	}
}

// BenchmarkHeldSpend is a decision by tokens on lease.
func BenchmarkHeldSpend(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprint("charges=", n), func(b *testing.B) {
			r := NewRedis(RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.StartRedis(b).Addr}}, Budget: patient, Leases: true})
			b.Cleanup(func() { r.Close() })
			r.Ready(b.Context())
			var charges []limit.Charge
			for i := range n {
				charges = append(charges, leased(fmt.Sprint("k", i), limit.Limit{Algorithm: limit.TokenBucket, Count: 1_000_000_000, Window: time.Second, Burst: 1_000_000_000}))
			}
			decisions := make([]limit.Decision, n)
			b.ReportAllocs()
			for b.Loop() {
				r.Spend(context.Background(), charges, decisions)
			}
			s := r.Stats()
			b.ReportMetric(float64(s.Trips+s.LeaseAsks)/float64(b.N), "calls/op")
		})
	}
}
