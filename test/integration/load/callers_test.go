//go:build full

package load

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// deadline is the callers'. It is so long that it never bounds how long the sidecar waits for Redis.
const deadline = 10 * time.Second

// tally is what callers were answered.
type tally struct {
	asked    map[string]int // by user
	admitted map[string]int // by user
	refused  int
	degraded map[string]int // answers made without Redis, by reason
	failed   map[string]int // calls without an answer, by error
	slowest  time.Duration
}

func newTally() tally {
	return tally{asked: map[string]int{}, admitted: map[string]int{}, degraded: map[string]int{},
		failed: map[string]int{}}
}

// add adds another caller's answers.
func (t *tally) add(other tally) {
	for _, pair := range [][2]map[string]int{{t.asked, other.asked}, {t.admitted, other.admitted},
		{t.degraded, other.degraded}, {t.failed, other.failed}} {
		for name, n := range pair[1] {
			pair[0][name] += n
		}
	}
	t.refused += other.refused
	t.slowest = max(t.slowest, other.slowest)
}

// sum is the sum of all counts.
func sum(counts map[string]int) (n int) {
	for count := range maps.Values(counts) {
		n += count
	}
	return n
}

func (t *tally) String() string {
	return fmt.Sprintf("%d asked, %d admitted, %d refused, the slowest answer after %v", sum(t.asked), sum(t.admitted),
		t.refused, t.slowest.Round(time.Millisecond))
}

// caller is a client with a connection of its own.
type caller struct {
	conn   *grpc.ClientConn
	client ratelimitv3.RateLimitServiceClient
	tally
}

// dial makes a caller that connects with its first call, and waits for the connection then.
func dial(t testing.TB, address string) *caller {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatalf("connect to the sidecar: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	return &caller{conn: conn, client: ratelimitv3.NewRateLimitServiceClient(conn), tally: newTally()}
}

// connect waits until the caller is connected.
func (c *caller) connect(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c.conn.Connect()
	for state := c.conn.GetState(); state != connectivity.Ready; state = c.conn.GetState() {
		if !c.conn.WaitForStateChange(ctx, state) {
			t.Fatalf("a caller is %v after %v", state, deadline)
		}
	}
}

// ask spends one hit of a user and notes the answer.
func (c *caller) ask(user string) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c.asked[user]++
	begun := time.Now()
	got, err := c.client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: domain,
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
	})
	c.slowest = max(c.slowest, time.Since(begun))
	if err != nil {
		c.failed[err.Error()]++
		return
	}
	if reason := got.GetDynamicMetadata().GetFields()["degraded"].GetStringValue(); reason != "" {
		c.degraded[reason]++
	}
	switch got.GetOverallCode() {
	case ratelimitv3.RateLimitResponse_OK:
		c.admitted[user]++
	case ratelimitv3.RateLimitResponse_OVER_LIMIT:
		c.refused++
	default:
		c.failed["an answer that says nothing"]++
	}
}

// together lets all callers run at once and returns their answers when the last has ended.
func together(callers []*caller, run func(n int, c *caller)) *tally {
	var running, waiting sync.WaitGroup
	start := make(chan struct{})
	waiting.Add(len(callers))
	for n, c := range callers {
		running.Go(func() {
			waiting.Done()
			<-start
			run(n, c)
		})
	}
	waiting.Wait()
	close(start)
	running.Wait()
	all := newTally()
	for _, c := range callers {
		all.add(c.tally)
		c.tally = newTally()
	}
	return &all
}

// press lets all callers ask one call after the other until next has no more users.
func press(callers []*caller, next func() (user string, more bool)) *tally {
	return together(callers, func(_ int, c *caller) {
		for user, more := next(); more; user, more = next() {
			c.ask(user)
		}
	})
}
