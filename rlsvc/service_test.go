package rlsvc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// faults collects what OnPanic is told.
type faults struct {
	mu   sync.Mutex
	seen []any // guarded by mu
}

func (f *faults) add(fault any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fault)
}

// handle runs the gRPC handler as a server would, and reads the reply as Envoy would.
func handle(t *testing.T, s *Service, wire []byte, interceptor grpc.UnaryServerInterceptor) (*ratelimitv3.RateLimitResponse, error) {
	t.Helper()
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	reply, err := shouldRateLimit(s, t.Context(), dec, interceptor)
	if err != nil {
		return nil, err
	}
	answer := new(ratelimitv3.RateLimitResponse)
	err = proto.Unmarshal(reply.(*Reply).AppendWire(nil), answer)
	if err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	return answer, nil
}

// codes returns the overall code and those of the statuses.
func codes(answer *ratelimitv3.RateLimitResponse) string {
	out := answer.GetOverallCode().String() + ":"
	for _, s := range answer.GetStatuses() {
		out += " " + s.GetCode().String()
	}
	return out
}

func TestAnEmptyVerdictAdmitsAndIsCounted(t *testing.T) {
	var f faults
	s := New(Config{Engine: script(func(*descriptors.Request, *engine.Verdict) {}), OnPanic: f.add})
	answer, err := handle(t, s, append(request(), request()...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := codes(answer); got != "OK: OK OK" {
		t.Errorf("answered %s", got)
	}
	if len(f.seen) != 1 {
		t.Errorf("told of %v, want one fault", f.seen)
	}
}

func TestAVerdictIsNeverThatOfTheCallBefore(t *testing.T) {
	refuse := true
	s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) {
		if refuse {
			*v = refusal()
			v.Degraded = "timeout"
		}
	})})
	for range 2 {
		answer, err := handle(t, s, request(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := codes(answer); !refuse && (got != "OK: OK" || answer.GetDynamicMetadata() != nil) {
			t.Errorf("the verdict of the call before came back: %v", answer)
		}
		refuse = false
	}
}

func TestAPanicIsAnsweredAndCounted(t *testing.T) {
	refuse := func(_ *descriptors.Request, v *engine.Verdict) {
		v.Refused = true
		v.Statuses = append(v.Statuses, engine.Status{Over: true}, engine.Status{})
	}
	boom := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		_, _ = next(ctx, req)
		panic("boom")
	}
	cases := []struct {
		name        string
		decide      script
		interceptor grpc.UnaryServerInterceptor
		unwritable  bool
		want        string
	}{
		{"in the decider", func(req *descriptors.Request, v *engine.Verdict) { refuse(req, v); panic("boom") }, nil, false, "OK: OK OK"},
		{"while rendering: the decision stands", refuse, nil, true, "OVER_LIMIT: OVER_LIMIT OK"},
		{"in an interceptor: the decision stands", refuse, boom, false, "OVER_LIMIT: OVER_LIMIT OK"},
	}
	for _, c := range cases {
		var f faults
		s := New(Config{Engine: c.decide, OnPanic: f.add})
		if c.unwritable {
			s.write = func([]byte, *descriptors.Request, *engine.Verdict) []byte { panic("boom") }
		}
		answer, err := handle(t, s, append(request(), request()...), c.interceptor)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := codes(answer); got != c.want {
			t.Errorf("%s: answered %s, want %s", c.name, got, c.want)
		}
		if len(f.seen) != 1 {
			t.Errorf("%s: told of %v, want one fault", c.name, f.seen)
		}
	}
}

func TestAnUndecodableMessageIsTheOnlyError(t *testing.T) {
	s := New(Config{Engine: fixed(refusal())})
	_, err := handle(t, s, []byte{0xff}, nil)
	if err == nil {
		t.Error("a message that cannot be decoded was answered")
	}
	_, err = s.Answer(t.Context(), []byte{0xff}, nil)
	if err == nil {
		t.Error("Answer took a message that cannot be decoded")
	}
}

func TestInterceptorsSeeTheCall(t *testing.T) {
	s := New(Config{Engine: fixed(refusal())})
	var method, domain string
	see := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		method, domain = info.FullMethod, req.(*Message).Request.Domain
		return next(ctx, req)
	}
	answer, err := handle(t, s, append(message(1, []byte("shop")), append(append(request(), request()...), request()...)...), see)
	if err != nil {
		t.Fatal(err)
	}
	if method != "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" || domain != "shop" {
		t.Errorf("the interceptor saw %q for domain %q", method, domain)
	}
	if got := codes(answer); got != "OVER_LIMIT: OVER_LIMIT OK OK" {
		t.Errorf("answered %s", got)
	}
	shed := errors.New("shed")
	refuse := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) { return nil, shed }
	_, err = handle(t, s, request(), refuse)
	if !errors.Is(err, shed) {
		t.Errorf("the interceptor's error became %v", err)
	}
}

func TestTheDeciderGetsTheCallersContext(t *testing.T) {
	var got time.Time
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	want, _ := ctx.Deadline()
	_, err := New(Config{Engine: deadline{&got}}).Answer(ctx, request(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Equal(want) {
		t.Errorf("deadline %v, want %v", got, want)
	}
}

type deadline struct{ seen *time.Time }

func (d deadline) Decide(ctx context.Context, _ *descriptors.Request, v *engine.Verdict) {
	*d.seen, _ = ctx.Deadline()
	v.Statuses = append(v.Statuses, engine.Status{})
}

// TestConcurrentCallsDoNotMeet sends calls with their own number in every field, and looks for another's in the answers.
func TestConcurrentCallsDoNotMeet(t *testing.T) {
	s := New(Config{Engine: echo{}, DynamicMetadata: true})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for range 200 {
				domain := fmt.Sprintf("caller-%d", caller)
				answer, err := handle(t, s, append(message(1, []byte(domain)), request()...), nil)
				if err != nil {
					t.Error(err)
					return
				}
				name := answer.GetStatuses()[0].GetCurrentLimit().GetName()
				metadata := answer.GetDynamicMetadata().AsMap()
				if name != domain || metadata["domain"] != domain || metadata["degraded"] != domain {
					t.Errorf("%s got the answer of another: %v", domain, answer)
					return
				}
			}
		})
	}
	callers.Wait()
}

func BenchmarkShouldRateLimit(b *testing.B) {
	s := New(Config{Engine: fixed(refusal())})
	wire := wireOf(b, typical())
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	b.ReportAllocs()
	for b.Loop() {
		_, err := shouldRateLimit(s, b.Context(), dec, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}
