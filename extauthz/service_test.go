package extauthz

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
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
func handle(t *testing.T, s *Service, wire []byte, interceptor grpc.UnaryServerInterceptor) (*authv3.CheckResponse, error) {
	t.Helper()
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	reply, err := check(s, t.Context(), dec, interceptor)
	if err != nil {
		return nil, err
	}
	return answerOf(t, reply.(*Reply).AppendWire(nil)), nil
}

// codes returns the code of the answer and the status of a denial.
func codes(answer *authv3.CheckResponse) string {
	return fmt.Sprintf("%d %d", answer.GetStatus().GetCode(), answer.GetDeniedResponse().GetStatus().GetCode())
}

func TestTheDomainIsTheRoutesElseTheDefault(t *testing.T) {
	var got string
	s := New(Config{DefaultDomain: "everything", Engine: script(func(req *descriptors.Request, _ *engine.Verdict) { got = req.Domain })})
	for _, c := range []struct{ extension, want string }{{"shop", "shop"}, {"", "everything"}} {
		_, err := s.Answer(t.Context(), attributes(message(10, pair("domain", c.extension))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("context extension %q: domain %q, want %q", c.extension, got, c.want)
		}
	}
}

func TestAnEmptyVerdictAdmitsWithAStatus(t *testing.T) {
	s := New(Config{Engine: script(func(*descriptors.Request, *engine.Verdict) {})})
	out, err := s.Answer(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != "\x0a\x00\x1a\x00" {
		t.Errorf("answered %x: want a status and an OkHttpResponse, both present and empty", out)
	}
}

func TestAVerdictIsNeverThatOfTheCallBefore(t *testing.T) {
	refuse := true
	s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) {
		if refuse {
			*v = with(refused(), degraded("timeout"))
			v.Malformed = &identity.Refusal{}
		}
	})})
	for range 2 {
		answer, err := handle(t, s, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(answer); !refuse && got != "code 0\nok\n" {
			t.Errorf("the verdict of the call before came back: %s", got)
		}
		refuse = false
	}
}

func TestAPanicIsAnsweredAndCounted(t *testing.T) {
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
		{"in the decider", func(_ *descriptors.Request, v *engine.Verdict) { *v = refused(); panic("boom") }, nil, false, "0 0"},
		{"while rendering: the admission stands", fixed(admitted()), nil, true, "0 0"},
		{"while rendering: the refusal stands", fixed(refused()), nil, true, "8 429"},
		{"while rendering: the block stands", fixed(blocked()), nil, true, "7 403"},
		{"in an interceptor: the decision stands", fixed(refused()), boom, false, "8 429"},
	}
	for _, c := range cases {
		var f faults
		s := New(Config{Engine: c.decide, OnPanic: f.add})
		if c.unwritable {
			s.write = func(b []byte, _ *descriptors.Request, _ *engine.Verdict) []byte {
				_ = append(b, "half an answer"...)
				panic("boom")
			}
		}
		answer, err := handle(t, s, nil, c.interceptor)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := codes(answer); got != c.want {
			t.Errorf("%s: answered %s, want %s", c.name, got, c.want)
		}
		if len(f.seen) != 1 || f.seen[0] != "boom" {
			t.Errorf("%s: told of %v, want one boom", c.name, f.seen)
		}
	}
}

func TestOnlyAnUndecodableMessageIsAnError(t *testing.T) {
	s := New(Config{Engine: fixed(admitted())})
	_, err := handle(t, s, []byte{0x0a, 0x7f}, nil)
	if err == nil {
		t.Error("the handler answers bytes that are no message")
	}
	_, err = s.Answer(t.Context(), []byte{0x0a, 0x7f}, nil)
	if err == nil {
		t.Error("Answer answers bytes that are no message")
	}
}

func TestInterceptorsSeeTheMessageAndHaveTheLastWord(t *testing.T) {
	s := New(Config{Engine: fixed(admitted())})
	_, err := handle(t, s, nil, func(_ context.Context, req any, info *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		if _, ours := req.(*Message); !ours || info.FullMethod != "/envoy.service.auth.v3.Authorization/Check" {
			t.Errorf("an interceptor sees %T for %s", req, info.FullMethod)
		}
		return nil, errors.New("no")
	})
	if err == nil || err.Error() != "no" {
		t.Errorf("the interceptor's error became %v", err)
	}
}

func TestTheDeciderGetsTheCallersContext(t *testing.T) {
	var seen time.Time
	s := New(Config{Engine: deadline{&seen}})
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	_, err := s.Answer(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := ctx.Deadline(); !seen.Equal(want) {
		t.Errorf("deadline %v, want %v", seen, want)
	}
}

type deadline struct{ seen *time.Time }

func (d deadline) Decide(ctx context.Context, _ *descriptors.Request, _ *engine.Verdict) {
	*d.seen, _ = ctx.Deadline()
}

func TestAnswersAreAppended(t *testing.T) {
	s := New(Config{Engine: fixed(refused())})
	alone, err := s.Answer(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := s.Answer(t.Context(), nil, []byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	if string(after) != "before"+string(alone) {
		t.Errorf("appended %q, alone %q", after, alone)
	}
	if got := string((&Reply{wire: alone}).AppendWire([]byte("before"))); got != string(after) {
		t.Errorf("a reply appends %q", got)
	}
}

// TestConcurrentCallsDoNotMeet sends calls with their own number in every field, and looks for another's in the answers.
func TestConcurrentCallsDoNotMeet(t *testing.T) {
	s := New(Config{Engine: echo{}})
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for range 200 {
				name := fmt.Sprintf("caller-%d", caller)
				wire := attributes(message(1, message(4, []byte(name))), httpOf(message(2, []byte(name)), message(4, []byte(name)), message(3, pair("x-caller", name))), message(10, pair("domain", name)))
				answer, err := handle(t, s, wire, nil)
				if err != nil {
					t.Error(err)
					return
				}
				metadata := answer.GetDynamicMetadata().AsMap()
				if metadata["degraded"] != name || metadata["rule"] != name || denied(t, answer)["x-caller"] != name {
					t.Errorf("%s got the answer of another: %v", name, answer)
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestACallAllocatesLittle counts from the decoded request to the wire answer, and for a whole call.
func TestACallAllocatesLittle(t *testing.T) {
	wire := wireOf(t, typical())
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	for name, verdict := range map[string]engine.Verdict{"admitted": admitted(), "refused": with(refused(), style(descriptors.HeadersBoth)), "blocked": blocked()} {
		s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) { *v = verdict })})
		var c call
		if c.message.ParseWire(wire) != nil {
			t.Fatal("a typical request cannot be read")
		}
		var out []byte
		answer := testing.AllocsPerRun(100, func() { out = s.answer(t.Context(), &c, out[:0]) })
		if answer > 0 {
			t.Errorf("%s: %v allocations from the request to the answer", name, answer)
		}
		whole := testing.AllocsPerRun(100, func() { _, _ = check(s, t.Context(), dec, nil) })
		if whole > 10 { // mostly 3; the race detector makes the pool forget
			t.Errorf("%s: %v allocations for a call", name, whole)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, verdict := range map[string]engine.Verdict{"admitted": admitted(), "refused": refused()} {
		b.Run(name, func(b *testing.B) {
			s := New(Config{Engine: fixed(verdict)})
			wire := wireOf(b, typical())
			dec := func(v any) error { return v.(*Message).ParseWire(wire) }
			b.ReportAllocs()
			for b.Loop() {
				_, err := check(s, b.Context(), dec, nil)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
