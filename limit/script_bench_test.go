package limit_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// BenchmarkScript reports what a call of the script costs the Redis server. usec/call is that of commandstats, the smallest of many
// batches, so that a busy machine disturbs it little; redis-µs/op is the processor time with all that surrounds the call.
func BenchmarkScript(b *testing.B) {
	wide := limit.Limit{Count: 100_000, Burst: 100_000, Window: time.Hour}
	spent := limit.Limit{Count: 1, Burst: 1, Window: 365 * 24 * time.Hour}
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog} {
		wide, spent := wide, spent
		wide.Algorithm, spent.Algorithm = kind, kind
		if kind == limit.SlidingLog {
			wide.Count = limit.MaxLogCount
		}
		b.Run(kind.String()+"/admitted", func(b *testing.B) { benchmarkScript(b, limit.Charge{Limit: wide}) })
		b.Run(kind.String()+"/first", func(b *testing.B) { benchmarkFirst(b, limit.Charge{Limit: wide}) })
		b.Run(kind.String()+"/refused", func(b *testing.B) { benchmarkScript(b, limit.Charge{Limit: spent}) })
		four := slices.Repeat([]limit.Charge{{Limit: wide}}, 4)
		b.Run(kind.String()+"/four", func(b *testing.B) { benchmarkScript(b, four...) })
		four = slices.Clone(four)
		four[2].Limit = spent
		b.Run(kind.String()+"/four_refused", func(b *testing.B) { benchmarkScript(b, four...) })
		for i := range four {
			four[i].Each = true
		}
		b.Run(kind.String()+"/tree_refused", func(b *testing.B) { benchmarkScript(b, four...) })
	}
	wide.Algorithm, spent.Algorithm = limit.TokenBucket, limit.TokenBucket
	many := &limit.Penalty{Threshold: limit.MaxThreshold, Window: time.Hour, CoolDown: time.Millisecond}
	once := &limit.Penalty{Threshold: 1, Window: time.Hour, CoolDown: time.Hour}
	for name, c := range map[string]limit.Charge{
		"throttled": {Limit: wide, MaxWait: time.Minute},
		"watched":   {Limit: wide, Penalty: many},
		"recorded":  {Limit: spent, Penalty: many},
		"cooling":   {Limit: spent, Penalty: once},
	} {
		b.Run("token_bucket/"+name, func(b *testing.B) { benchmarkScript(b, c) })
	}
}

// batch is how many calls go to the server in one pipeline.
const batch = 100

// benchmarkScript calls the script with charges of 1 on a hundred sets of keys.
func benchmarkScript(b *testing.B, charges ...limit.Charge) { benchmarkKeys(b, batch, charges) }

// benchmarkFirst calls the script on keys that are always new.
func benchmarkFirst(b *testing.B, charges ...limit.Charge) { benchmarkKeys(b, math.MaxInt, charges) }

func benchmarkKeys(b *testing.B, keys int, charges []limit.Charge) {
	client, ctx := connect(b), context.Background()
	pipe := client.Pipeline()
	smallest, processor := math.Inf(1), 0.0
	for done := 0; done < b.N; done += batch {
		for i := done; i < min(done+batch, b.N); i++ {
			for j := range charges {
				c := &charges[j]
				c.Key, c.Cost = fmt.Sprint("key", i%keys, j), 1
				c.PenaltyKey = c.Key + ":pn"
			}
			call := limit.NewCall(charges, false, 0)
			_, name := call.First()
			pipe.EvalSha(ctx, name, call.Keys, call.Args()...)
		}
		client.ConfigResetStat(ctx)
		before := processorTime(b, client)
		if _, err := pipe.Exec(ctx); err != nil {
			b.Fatal(err)
		}
		processor += processorTime(b, client) - before
		if done >= batch { // the first one meets no keys yet
			smallest = min(smallest, callTime(b, client))
		}
	}
	b.ReportMetric(processor/float64(b.N)*1e6, "redis-µs/op")
	if !math.IsInf(smallest, 1) {
		b.ReportMetric(smallest, "usec/call")
	}
}

// BenchmarkBatch reports what requests with four charges cost the Redis server when they come together. All times are per request.
func BenchmarkBatch(b *testing.B) {
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.FixedWindow} {
		for _, requests := range []int{5, 16} {
			b.Run(fmt.Sprintf("%v/%dx4", kind, requests), func(b *testing.B) { benchmarkBatch(b, kind, requests) })
		}
	}
}

func benchmarkBatch(b *testing.B, kind limit.Algorithm, requests int) {
	client, ctx := connect(b), context.Background()
	charges := slices.Repeat([]limit.Charge{{Limit: limit.Limit{Algorithm: kind, Count: 100_000, Burst: 100_000, Window: time.Hour}, Cost: 1, Each: true}}, 4)
	pipe := client.Pipeline()
	smallest, processor, done := math.Inf(1), 0.0, 0
	for ; done < b.N; done += 10 * requests {
		for i := range 10 {
			var keys []string
			var call limit.Call
			for j := range requests {
				for k := range charges {
					charges[k].Key = fmt.Sprint("key", i, j, k)
				}
				call.Set(charges, false, 0)
				keys = append(keys, call.Keys...)
			}
			pipe.EvalSha(ctx, limit.BatchSHA, keys, []byte{byte(requests)}, call.Packed())
		}
		client.ConfigResetStat(ctx)
		before := processorTime(b, client)
		if _, err := pipe.Exec(ctx); err != nil {
			b.Fatal(err)
		}
		processor += processorTime(b, client) - before
		smallest = min(smallest, callTime(b, client)/float64(requests))
	}
	b.ReportMetric(processor/float64(done)*1e6, "redis-µs/op")
	b.ReportMetric(smallest, "usec/call")
}

// callTime is the mean time of an EVALSHA since the statistics began, in microseconds.
func callTime(t testing.TB, client *redis.Client) float64 {
	found := regexp.MustCompile(`cmdstat_evalsha:.*usec_per_call=([0-9.]+)`).FindStringSubmatch(client.Info(context.Background(), "commandstats").Val())
	if found == nil {
		t.Fatal("the server does not tell the time of EVALSHA")
	}
	mean, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatalf("time of EVALSHA: %v", err)
	}
	return mean
}

// connect starts a Redis server that knows the scripts.
func connect(t testing.TB) *redis.Client {
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket})
	t.Cleanup(func() { client.Close() })
	for _, text := range []string{limit.Script, limit.LeanScript, limit.TightScript, limit.BatchScript} {
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
