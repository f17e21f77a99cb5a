package exact

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// request is what a caller asks for. A request with a tenant has a second descriptor.
type request struct {
	user, tenant string
	cost         int64
}

// answer is what a caller is told.
type answer struct {
	outcome
	limit     int64  // count of the limit that it names; 0: none
	remaining int64  // of that limit
	failure   string // why it is undecided
}

// asker is one who decides: a sidecar, or a model of one.
type asker interface{ ask(r request) answer }

// seat is the place of one sidecar among several. Its callers stay when another one takes it.
type seat struct {
	current atomic.Pointer[asker]
	active  atomic.Bool // its callers ask; false: they wait
}

func newSeat(a asker) *seat {
	s := &seat{}
	s.sit(a)
	s.active.Store(true)
	return s
}

// sit puts another one into the seat.
func (s *seat) sit(a asker) { s.current.Store(&a) }

const (
	callersPerSeat = 8
	farBehind      = 100 * time.Millisecond // a caller that is later than that does not catch up
)

// crowd is callers in front of several seats, and what they saw.
type crowd struct {
	seats  []*seat
	next   func(n int64) request // the n-th request
	offset time.Duration         // of the clock of Redis from that of this process
	asked  atomic.Int64

	mu   sync.Mutex // guards seen
	seen history
}

// now is an instant on the clock of Redis.
func (c *crowd) now() int64 { return time.Now().Add(c.offset).UnixMicro() }

// under lets all callers ask while act runs: so many requests a second together, 0: as many as they can.
func (c *crowd) under(rate int64, act func()) {
	var running sync.WaitGroup
	stop := make(chan struct{})
	var gap time.Duration
	callers := len(c.seats) * callersPerSeat
	if rate > 0 {
		gap = time.Second * time.Duration(callers) / time.Duration(rate)
	}
	begun := time.Now()
	for i := range callers {
		running.Go(func() {
			// The callers' turns are spread over the gap.
			c.call(c.seats[i%len(c.seats)], begun.Add(gap*time.Duration(i)/time.Duration(callers)), gap, stop)
		})
	}
	act()
	close(stop)
	running.Wait()
}

// call is one caller: it asks at its turns until stop is closed.
func (c *crowd) call(s *seat, turn time.Time, gap time.Duration, stop <-chan struct{}) {
	var seen history
	for {
		if gap == 0 || !s.active.Load() {
			turn = time.Now()
		}
		if !s.active.Load() {
			turn = turn.Add(time.Millisecond)
		}
		select {
		case <-stop:
			c.mu.Lock()
			c.seen = append(c.seen, seen...)
			c.mu.Unlock()
			return
		case <-time.After(time.Until(turn)):
		}
		if !s.active.Load() {
			continue
		}
		seen = append(seen, c.ask(*s.current.Load()))
		turn = turn.Add(gap)
		if time.Since(turn) > farBehind {
			turn = time.Now()
		}
	}
}

// ask asks once, and notes the instants before and after.
func (c *crowd) ask(a asker) event {
	e := event{request: c.next(c.asked.Add(1))}
	e.from, e.cost = c.now(), e.request.cost
	got := a.ask(e.request)
	e.to, e.outcome, e.limit, e.failure = c.now(), got.outcome, got.limit, got.failure
	return e
}

// patience is how long a caller waits for an answer: so long that it never bounds how long a sidecar waits for Redis.
const patience = 10 * time.Second

// client asks a sidecar over gRPC.
type client struct {
	conn *grpc.ClientConn
	rls  ratelimitv3.RateLimitServiceClient
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatalf("connect to the sidecar: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{conn: conn, rls: ratelimitv3.NewRateLimitServiceClient(conn)}
}

// unanswered begins the failure of a call without an answer.
const unanswered = "no answer: "

func (c *client) ask(r request) answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := c.rls.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: descriptors(r), HitsAddend: uint32(r.cost)})
	if err != nil {
		return answer{outcome: undecided, failure: unanswered + status.Code(err).String()}
	}
	a := answer{outcome: undecided, failure: got.GetDynamicMetadata().GetFields()["degraded"].GetStringValue()}
	for _, s := range got.GetStatuses() {
		if limit := int64(s.GetCurrentLimit().GetRequestsPerUnit()); limit > a.limit {
			a.limit, a.remaining = limit, int64(s.GetLimitRemaining())
		}
	}
	switch code := got.GetOverallCode(); {
	case code == ratelimitv3.RateLimitResponse_OK:
		a.outcome = admitted
	case code != ratelimitv3.RateLimitResponse_OVER_LIMIT:
		a.failure = unanswered + "nothing"
	case a.failure == "":
		a.outcome = refused
	}
	return a
}

func descriptors(r request) []*ratelimitcommon.RateLimitDescriptor {
	var all []*ratelimitcommon.RateLimitDescriptor
	for _, entry := range [][2]string{{"user", r.user}, {"tenant", r.tenant}} {
		if entry[1] != "" {
			all = append(all, &ratelimitcommon.RateLimitDescriptor{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: entry[0], Value: entry[1]}}})
		}
	}
	return all
}
