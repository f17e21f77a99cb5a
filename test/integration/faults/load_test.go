package faults

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	lateFrom    = 20 * time.Millisecond
	connections = 8 // to the sidecar, which takes 128 calls at once on each; Envoy opens more where it needs them
)

var (
	// rate is requests per second.
	rate = either(1000, 200)
	// keys is how many identities are asked about, each with a counter of its own.
	keys = either(200, 40)
	// patience is the caller's deadline. Envoy's is 20 ms, but a caller that gives up does not see how late an answer
	// is; the store's budget is its own 10 ms with either.
	patience = either(2*time.Second, 30*time.Second)
)

// either is the first value where time is judged, and the second one where rows run beside each other on a busy
// machine.
func either[T any](judged, not T) T {
	if full {
		return judged
	}
	return not
}

// domainOf is which rule a key is asked of: one in three of each failure policy. A part of the local ones have a small
// limit. Keys beyond those of the load are of rows that want to see a limit spent.
func domainOf(key int) string {
	switch {
	case key >= keys:
		return "scarce"
	case key%3 == 0:
		return "open"
	case key%3 == 1:
		return "closed"
	case key%12 == 11:
		return "share"
	}
	return "local"
}

// answer is what became of one request.
type answer struct {
	at        time.Time // sent
	took      time.Duration
	key       int
	code      ratelimitv3.RateLimitResponse_Code
	remaining uint32
	degraded  string // why it was decided without the store; empty if it was not
	zero      bool   // without a code: Envoy would take it for an OK
	err       error
}

// counted reports whether the store decided.
func (a *answer) counted() bool { return a.err == nil && a.degraded == "" }

// load is an open loop of requests: the next one leaves on time, also while the last one waits.
type load struct {
	clients []ratelimitv3.RateLimitServiceClient // asked in turns
	asked   atomic.Int64

	cancelAfter atomic.Int64 // ns after which every other caller hangs up; 0: none does

	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex // guards answers
	answers []answer
}

func newLoad(t testing.TB, address string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for range connections {
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatalf("connect to the sidecar: %v", err)
		}
		t.Cleanup(func() { conn.Close() })
		l.clients = append(l.clients, ratelimitv3.NewRateLimitServiceClient(conn))
	}
	return l
}

// start sends requests until end.
func (l *load) start() { l.flow(rate, l.stop) }

// flow sends so many requests per second until stop is closed.
func (l *load) flow(perSecond int, stop <-chan struct{}) {
	l.running.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		begun := time.Now()
		for sent := 0; ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for due := int(time.Since(begun) * time.Duration(perSecond) / time.Second); sent < due; sent++ {
				n := sent
				l.running.Go(func() { l.keep(l.request(n)) })
			}
		}
	})
}

// end stops sending and returns all answers, in the order in which they came.
func (l *load) end() []answer {
	close(l.stop)
	l.running.Wait()
	return l.answers
}

// answered is how many answers have come.
func (l *load) answered() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.answers))
}

func (l *load) keep(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// request sends request n of the loop.
func (l *load) request(n int) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if after := time.Duration(l.cancelAfter.Load()); after > 0 && n%2 == 0 {
		timer := time.AfterFunc(after, cancel)
		defer timer.Stop()
	}
	return l.ask(ctx, n%keys, 1)
}

// ask spends hits on a key.
func (l *load) ask(ctx context.Context, key int, hits uint32) answer {
	request := &ratelimitv3.RateLimitRequest{
		Domain: domainOf(key), HitsAddend: hits,
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprintf("k%d", key)}}}},
	}
	a := answer{at: time.Now(), key: key}
	got, err := l.clients[l.asked.Add(1)%connections].ShouldRateLimit(ctx, request)
	a.took, a.err = time.Since(a.at), err
	if err != nil {
		return a
	}
	a.code = got.GetOverallCode()
	a.degraded = got.GetDynamicMetadata().GetFields()["degraded"].GetStringValue()
	a.zero = a.code == ratelimitv3.RateLimitResponse_UNKNOWN || len(got.GetStatuses()) != 1 ||
		got.GetStatuses()[0].GetCode() != a.code
	if !a.zero {
		a.remaining = got.GetStatuses()[0].GetLimitRemaining()
	}
	return a
}
