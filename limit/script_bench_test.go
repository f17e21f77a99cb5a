package limit_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkScript reports the processor time of the Redis server per call of the script, pipelined, which a busy machine
// disturbs less than the time on the wall.
func BenchmarkScript(b *testing.B) {
	wide := limit.Limit{Count: 10_000, Burst: 10_000, Window: time.Hour}
	spent := limit.Limit{Count: 1, Burst: 1, Window: 365 * 24 * time.Hour}
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog} {
		b.Run(kind.String()+"/admitted", func(b *testing.B) { benchmarkScript(b, kind, limit.Charge{Limit: wide}, 1) })
		b.Run(kind.String()+"/refused", func(b *testing.B) { benchmarkScript(b, kind, limit.Charge{Limit: spent}, 1) })
		b.Run(kind.String()+"/three", func(b *testing.B) { benchmarkScript(b, kind, limit.Charge{Limit: wide}, 3) })
	}
	many := &limit.Penalty{Threshold: limit.MaxThreshold, Window: time.Hour, CoolDown: time.Millisecond}
	once := &limit.Penalty{Threshold: 1, Window: time.Hour, CoolDown: time.Hour}
	for name, c := range map[string]limit.Charge{
		"throttled": {Limit: wide, MaxWait: time.Minute},
		"watched":   {Limit: wide, Penalty: many},
		"recorded":  {Limit: spent, Penalty: many},
		"cooling":   {Limit: spent, Penalty: once},
	} {
		b.Run("token_bucket/"+name, func(b *testing.B) { benchmarkScript(b, limit.TokenBucket, c, 1) })
	}
}

func benchmarkScript(b *testing.B, kind limit.Algorithm, c limit.Charge, size int) {
	client, ctx := connect(b), context.Background()
	c.Limit.Algorithm, c.Cost = kind, 1
	before := processorTime(b, client)
	pipe := client.Pipeline()
	charges := make([]limit.Charge, size)
	for i := range b.N {
		for j := range charges {
			charges[j] = c
			charges[j].Key = fmt.Sprint("key", i%100, j)
			charges[j].PenaltyKey = charges[j].Key + ":pn"
		}
		call := limit.NewCall(charges, false, 0)
		pipe.EvalSha(ctx, limit.ScriptSHA, call.Keys, call.Args...)
		if i%100 == 99 || i == b.N-1 {
			if _, err := pipe.Exec(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric((processorTime(b, client)-before)/float64(b.N)*1e6, "redis-µs/op")
}

// connect starts a Redis server that knows both scripts.
func connect(t testing.TB) *redis.Client {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket})
	t.Cleanup(func() { client.Close() })
	for _, text := range []string{limit.Script, limit.LeanScript} {
		err := client.ScriptLoad(context.Background(), text).Err()
		if err != nil {
			t.Fatalf("load a script: %v", err)
		}
	}
	return client
}

// processorTime is what the server's main thread has used, in seconds.
func processorTime(t testing.TB, client *redis.Client) float64 {
	var sum float64
	for _, line := range strings.Fields(client.Info(context.Background(), "cpu").Val()) {
		name, value, _ := strings.Cut(line, ":")
		if !strings.HasSuffix(name, "_main_thread") {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("processor time %q: %v", line, err)
		}
		sum += seconds
	}
	return sum
}
