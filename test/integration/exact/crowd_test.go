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

// answer is what a caller gets.
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
	gap    atomic.Int64 // nanoseconds between the turns of a caller

	mu   sync.Mutex // guards seen
	seen history
}

// now is an instant on the clock of Redis.
func (c *crowd) now() int64 { return time.Now().Add(c.offset).UnixMicro() }

// pace is how many requests a second all callers send together, from their next turns on; 0: as many as they can.
func (c *crowd) pace(rate int64) {
	var gap time.Duration
	if rate > 0 {
		gap = time.Second * time.Duration(len(c.seats)*callersPerSeat) / time.Duration(rate)
	}
	c.gap.Store(int64(gap))
}

// under lets all callers ask at a pace while act runs.
func (c *crowd) under(rate int64, act func()) {
	var running sync.WaitGroup
	stop := make(chan struct{})
	c.pace(rate)
	begun, gap, callers := time.Now(), time.Duration(c.gap.Load()), len(c.seats)*callersPerSeat
	for i := range callers {
		running.Go(func() {
			// The callers' turns are spread over the gap.
			c.call(c.seats[i%len(c.seats)], begun.Add(gap*time.Duration(i)/time.Duration(callers)), stop)
		})
	}
	act()
	close(stop)
	running.Wait()
}

// call is one caller: it asks at its turns until stop is closed.
func (c *crowd) call(s *seat, turn time.Time, stop <-chan struct{}) {
	var seen history
	for {
		select {
		case <-stop:
			c.mu.Lock()
			c.seen = append(c.seen, seen...)
			c.mu.Unlock()
			return
		case <-time.After(time.Until(turn)):
		}
		gap := time.Duration(c.gap.Load())
		if s.active.Load() {
			seen = append(seen, c.ask(*s.current.Load()))
		} else {
			gap = max(gap, time.Millisecond)
		}
		turn = turn.Add(gap)
		if gap == 0 || time.Since(turn) > farBehind {
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
	got, err := c.rls.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: descriptors(r),
		HitsAddend: uint32(r.cost)})
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
			all = append(all,
				&ratelimitcommon.RateLimitDescriptor{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{
					{Key: entry[0], Value: entry[1]}}})
		}
	}
	return all
}
