package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// recordRules limit users over both doors.
const recordRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 100000000}}
  - {key: spent, rate_limit: {unit: day, requests_per_unit: 1}}
rules:
  - {name: reads, scope: ip, match: {methods: [GET]}, limit: 100000000/1h}
  - {name: writes, scope: ip, match: {methods: [POST]}, limit: 1/24h}
`

// startRecorded starts a sidecar with these rules.
func startRecorded(t testing.TB, redis *servers.Redis, environ ...string) *servers.Sidecar {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	must.Do(t, os.WriteFile(file, []byte(recordRules), 0o600))
	return servers.StartSidecar(t, append([]string{"RULES=" + file, "REDIS_URL=" + redis.Addr}, environ...)...)
}

// recordedRequests returns the requests that the stream of usage has, by sidecar, as a control plane counts them.
func recordedRequests(t testing.TB, redisAddr string) map[string]int64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer client.Close()
	entries := must.Get(client.XRange(context.Background(), keys.NewNames("", nil).Shared(journal.UsageStream),
		"-", "+").Result())(t)
	sum, last := map[string]int64{}, map[string]int64{}
	for _, one := range entries {
		fields := map[string]string{}
		for name, value := range one.Values {
			fields[name] = fmt.Sprint(value)
		}
		e := must.Get(journal.ParseEntry(fields))(t)
		if e.Sequence <= last[e.Sidecar] {
			continue
		}
		if e.Sequence != last[e.Sidecar]+1 {
			t.Fatalf("entry %d of %s follows %d", e.Sequence, e.Sidecar, last[e.Sidecar])
		}
		last[e.Sidecar] = e.Sequence
		rows := must.Get(journal.Unmarshal(e.Rows))(t)
		for _, r := range rows.Identities {
			if r.Rule == "" {
				sum[e.Sidecar] += r.Requests
			}
		}
	}
	return sum
}

func total(sum map[string]int64) int64 {
	n := int64(0)
	for _, one := range sum {
		n += one
	}
	return n
}

// askOften asks n times over /json from each of some clients, and returns how many were answered. A client ends at the
// first error.
func askOften(at string, clients, n int) int64 {
	var answered atomic.Int64
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	defer client.CloseIdleConnections()
	for worker := range clients {
		all.Go(func() {
			for i := range n {
				body := fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"u%d"}]}]}`,
					worker*100+i%100)
				reply, err := client.Post("http://"+at+"/json", "application/json", strings.NewReader(body))
				if err != nil {
					return
				}
				reply.Body.Close()
				answered.Add(1)
			}
		})
	}
	all.Wait()
	return answered.Load()
}

// TestTheRecordOfAKilledSidecar: kill -9 loses what was not written yet, and nothing is counted twice; SIGTERM loses
// nothing.
func TestTheRecordOfAKilledSidecar(t *testing.T) {
	redis := servers.StartRedis(t)
	first := startRecorded(t, redis, "RECORD=true")
	before := askOften(first.HTTP, 4, 50)
	servers.Await(t, "the record of all requests", func() error {
		if got := total(recordedRequests(t, redis.Addr)); got != before {
			return fmt.Errorf("%d of %d requests are recorded", got, before)
		}
		return nil
	})
	killed := make(chan int64)
	go func() { killed <- askOften(first.HTTP, 1, 1_000_000) }()
	servers.Await(t, "more of the record", func() error {
		if total(recordedRequests(t, redis.Addr)) == before {
			return errors.New("nothing was written since")
		}
		return nil
	})
	first.End(t)
	answered := before + <-killed
	got := total(recordedRequests(t, redis.Addr))
	// The answer to a request that is recorded may have been lost with the process.
	if got <= before || got > answered+1 {
		t.Errorf("%d requests are recorded, %d were answered", got, answered)
	}
	second := startRecorded(t, redis, "RECORD=true")
	more := askOften(second.HTTP, 4, 100)
	second.Send(t, syscall.SIGTERM)
	if code := second.Exit(t); code != 0 {
		t.Errorf("the sidecar ended with %d", code)
	}
	if again := total(recordedRequests(t, redis.Addr)); again != got+more {
		t.Errorf("%d requests are recorded, want %d and %d", again, got, more)
	}
}

// BenchmarkRecordCPU measures the processor time of a whole sidecar per decision and the memory that it has at the end,
// with and without the record. Two sidecars that are the same differ by some percent as long as they run, so each step
// starts two new ones; the mean of all steps comes with its standard error. One request in ten is refused, and there
// are 100 identities: each has several requests a second also on a slow machine.
func BenchmarkRecordCPU(b *testing.B) {
	for _, door := range []string{"rls", "ext_authz"} {
		b.Run(door, func(b *testing.B) {
			redis := servers.StartRedis(b)
			var cost, memory [2]float64
			var more []float64
			for b.Loop() {
				each, resident := recordTurns(b, redis, door)
				more = append(more, 100*(each[1]/each[0]-1))
				for with := range cost {
					cost[with] += each[with]
					memory[with] += resident[with]
				}
			}
			for with, name := range []string{"without", "with"} {
				b.ReportMetric(cost[with]/float64(b.N), name+"-us")
				b.ReportMetric(memory[with]/float64(b.N), name+"-MiB")
			}
			mean, deviation := meanOf(more)
			b.ReportMetric(mean, "%-more")
			b.ReportMetric(deviation, "%-error")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// recordTurns starts a sidecar without the record and one with it, and sends requests to them in turns. It returns the
// microseconds of a decision and the memory of each.
func recordTurns(b *testing.B, redis *servers.Redis, door string) (cost, memory [2]float64) {
	const turns = 12
	var sidecars [2]*servers.Sidecar
	var send [2]func(i int) error
	for with := range sidecars {
		sidecars[with] = startRecorded(b, redis, "RECORD="+strconv.FormatBool(with == 1), "CACHE_KEY_PREFIX="+
			strconv.Itoa(with))
		send[with] = sender(b, sidecars[with].GRPC, door)
		sendMany(b, send[with])
	}
	n := 0
	for turn := range turns {
		for i := range sidecars {
			with := (i + turn) % len(sidecars)
			began := processorTime(b, sidecars[with].Process.Process.Pid)
			n += sendMany(b, send[with])
			cost[with] += float64((processorTime(b, sidecars[with].Process.Process.Pid) - began).Microseconds())
		}
	}
	for with, s := range sidecars {
		cost[with] /= float64(n / len(sidecars))
		memory[with] = residentMiB(b, s.Process.Process.Pid)
		s.Send(b, syscall.SIGTERM)
		s.Exit(b)
	}
	return cost, memory
}

// meanOf returns the mean of some numbers and its standard error.
func meanOf(numbers []float64) (mean, deviation float64) {
	n := float64(len(numbers))
	for _, x := range numbers {
		mean += x / n
	}
	for _, x := range numbers {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / max(n-1, 1) / n)
}

// sender returns what sends request i to a door.
func sender(b *testing.B, address, door string) func(i int) error {
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	if door == "rls" {
		client := ratelimitv3.NewRateLimitServiceClient(conn)
		return func(i int) error {
			name := map[bool]string{true: "spent", false: "user"}[i%10 == 0]
			_, err := client.ShouldRateLimit(b.Context(), &ratelimitv3.RateLimitRequest{Domain: "shop",
				Descriptors: []*commonv3.RateLimitDescriptor{
					{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: name, Value: "u" + strconv.Itoa(i%100)}}},
				}})
			return err
		}
	}
	client := authv3.NewAuthorizationClient(conn)
	return func(i int) error {
		method, path := map[bool]string{true: "POST", false: "GET"}[i%10 == 0], "/items/"+strconv.Itoa(i%20)
		_, err := client.Check(b.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
				SocketAddress: &corev3.SocketAddress{Address: fmt.Sprintf("192.0.2.%d", i%100)},
			}}},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: method, Path: path, Headers: map[string]string{":path": path, "user-agent": "curl/8",
					"accept": "*/*", "x-request-id": "6c2d7b1e"},
			}},
			ContextExtensions: map[string]string{"domain": "shop"},
		}})
		return err
	}
}

// sendMany sends requests from 16 goroutines, and returns how many.
func sendMany(b *testing.B, send func(i int) error) int {
	const clients, each = 16, 100
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for i := range each {
				if err := send(client*each + i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return clients * each
}

// processorTime returns the processor time that the threads of a process have had.
func processorTime(b *testing.B, pid int) time.Duration {
	threads := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)))(b)
	total := time.Duration(0)
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns := must.Get(strconv.ParseInt(first, 10, 64))(b)
		total += time.Duration(ns)
	}
	return total
}

// residentMiB returns how much memory a process has.
func residentMiB(b *testing.B, pid int) float64 {
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(b)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib := must.Get(strconv.Atoi(strings.Fields(rest)[0]))(b)
	return float64(kib) / 1024
}
