package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-mesh/spillway/test/must"
)

// answerer answers calls with a function of the test, and counts them by the value of their first descriptor.
type answerer struct {
	rls.UnimplementedRateLimitServiceServer
	answer func(n int64) (*rls.RateLimitResponse, error)
	calls  atomic.Int64
	values [64]atomic.Int64
}

func (a *answerer) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	in, _ := metadata.FromIncomingContext(ctx)
	_, due := ctx.Deadline()
	if !due || len(in[":authority"]) != 1 {
		return nil, status.Error(codes.InvalidArgument, "a call without a deadline or an authority")
	}
	n := a.calls.Add(1)
	var i int
	for _, c := range strings.TrimPrefix(request.Descriptors[0].Entries[0].Value, "v") {
		i = 10*i + int(c-'0')
	}
	a.values[i].Add(1)
	return a.answer(n)
}

// start starts a server on a free port of the loopback.
func (a *answerer) start(t *testing.T) (target string) {
	t.Helper()
	target, _ = a.serve(t)
	return target
}

// serve starts one that a test can stop.
func (a *answerer) serve(t *testing.T) (target string, stop func()) {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(server, a)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String(), server.Stop
}

func ok(int64) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
}

// loadFor connects to the targets for a test.
func loadFor(t *testing.T, o order, targets ...string) (context.Context, *load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	o.Targets, o.Work = targets, work{Domain: "d", Keys: []string{"a"}, Values: len(answerer{}.values)}
	l := must.Get(newLoad(ctx, o))(t)
	t.Cleanup(l.close)
	return ctx, l
}

func TestFillMakesEachCallOnce(t *testing.T) {
	one, two := &answerer{answer: ok}, &answerer{answer: ok}
	ctx, l := loadFor(t, order{Connections: 2, InFlight: 20, Fill: true}, one.start(t), two.start(t))
	got := l.measured(ctx)
	if len(got.latencies) != len(one.values) || got.errors != 0 {
		t.Errorf("%d answers and %d errors (%s), want %d answers", len(got.latencies), got.errors, got.first,
			len(one.values))
	}
	for i := range one.values {
		if n := one.values[i].Load() + two.values[i].Load(); n != 1 {
			t.Errorf("call %d was made %d times", i, n)
		}
	}
}

// TestEveryCallOfALoopIsAnswered makes so many calls that windows of HTTP/2 have to be opened again, on connections
// that are used twice.
func TestEveryCallOfALoopIsAnswered(t *testing.T) {
	for name, rate := range map[string]float64{"closed": 0, "open": 5000} {
		t.Run(name, func(t *testing.T) {
			third := func(n int64) (*rls.RateLimitResponse, error) {
				code := rls.RateLimitResponse_OK
				if n%3 == 0 {
					code = rls.RateLimitResponse_OVER_LIMIT
				}
				long := []byte(strings.Repeat("x", int(n)%5000)) // some answers come in pieces
				return &rls.RateLimitResponse{OverallCode: code, RawBody: long}, nil
			}
			server := &answerer{answer: third}
			ctx, l := loadFor(t, order{Connections: 2, InFlight: 32, Rate: rate}, server.start(t))
			var got tally
			for got.errors == 0 && len(got.latencies) < 4000 {
				got.merge(l.flow(ctx, 200*time.Millisecond))
			}
			if got.errors != 0 || int64(len(got.latencies)) != server.calls.Load() ||
				int64(got.refused) != server.calls.Load()/3 {
				t.Errorf("%d answers, %d refused, %d errors (%s) of %d calls", len(got.latencies), got.refused,
					got.errors, got.first, server.calls.Load())
			}
		})
	}
}

func TestWhatGoesWrongIsCounted(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(n int64) (*rls.RateLimitResponse, error)
		want   string
	}{
		"a status": {func(int64) (*rls.RateLimitResponse, error) {
			return nil, status.Error(codes.Unavailable, "no Redis")
		}, "status 14: no Redis"},
		"no code": {func(int64) (*rls.RateLimitResponse, error) { return &rls.RateLimitResponse{}, nil },
			"an answer with overall_code 0"},
		"one of 64": {func(n int64) (*rls.RateLimitResponse, error) {
			if n == 40 {
				return nil, status.Error(codes.Internal, "the fortieth")
			}
			return ok(n)
		}, "status 13: the fortieth"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &answerer{answer: row.answer}
			ctx, l := loadFor(t, order{Connections: 1, InFlight: 4, Fill: true}, server.start(t))
			got := l.measured(ctx)
			if got.errors == 0 || got.first != row.want || got.errors+len(got.latencies) != len(server.values) {
				t.Errorf("%d errors, the first %q, and %d answers, want %q", got.errors, got.first, len(got.latencies),
					row.want)
			}
		})
	}
}

func TestAServerThatGoesAwayEndsARun(t *testing.T) {
	enough := make(chan struct{})
	server := &answerer{answer: func(n int64) (*rls.RateLimitResponse, error) {
		if n == 10 {
			close(enough)
		}
		return ok(n)
	}}
	target, stop := server.serve(t)
	go func() {
		<-enough
		stop()
	}()
	ctx, l := loadFor(t, order{Connections: 1, InFlight: 4}, target)
	got := l.flow(ctx, time.Hour)
	if got.errors == 0 || got.first == "" {
		t.Errorf("%d errors, the first %q, of a server that went away", got.errors, got.first)
	}
}

// TestAStreamMayEndTwice has a server that answers, and then ends the stream: grpc-go does so where it has not yet read
// that the client is done.
func TestAStreamMayEndTwice(t *testing.T) {
	w := &wire{calls: map[uint32]call{1: {answer: true, code: admitted}, 3: {}}, blocks: newBlocks()}
	reset := func(stream uint32) []byte { return appendFrame(nil, http2.FrameRSTStream, 0, stream, make([]byte, 4)) }
	// :status 200
	answered := appendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, 1,
		[]byte{0x88})
	for _, frame := range [][]byte{answered, reset(1), reset(3)} {
		must.Get(w.parseFrames(frame, time.Now()))(t)
	}
	if len(w.calls) != 0 || len(w.tally.latencies) != 1 || w.tally.errors != 1 {
		t.Errorf("%d calls are left, with %d answers and %d errors; want none left, one answer and one error",
			len(w.calls), len(w.tally.latencies), w.tally.errors)
	}
}
