package door

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
)

func TestBothWaysAnswerAlike(t *testing.T) {
	d := New(config(refuse))
	const want = "shop: no since shop"
	if got := send(t, d, "shop", nil); got != want {
		t.Errorf("over gRPC: %q, want %q", got, want)
	}
	got := must.Get(d.Answer(t.Context(), []byte("shop"), []byte("before ")))(t)
	if string(got) != "before "+want {
		t.Errorf("appended: %q, want %q", got, "before "+want)
	}
}

func TestAReplyOutlivesItsCall(t *testing.T) {
	d := New(config(refuse))
	dec := func(v any) error { return v.(*note).ParseWire([]byte("mine")) }
	reply := must.Get(d.Handle(d, t.Context(), dec, nil))(t)
	for range 20 { // the pool may forget
		send(t, d, "else", nil)
	}
	if got := string(reply.(*Reply).Wire().Materialize()); got != "mine: no since mine" {
		t.Errorf("the reply became %q", got)
	}
}

func TestAVerdictIsNeverThatOfTheCallBefore(t *testing.T) {
	early := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) { panic("boom") }
	for name, c := range map[string]struct {
		interceptor grpc.UnaryServerInterceptor
		want        string
	}{
		"a decider that fills nothing in":        {nil, "second: yes "},
		"an interceptor that panics before it":   {early, "second: yes"},
		"an interceptor that calls, and repeats": {twice, "second: yes "},
	} {
		for range 20 { // the pool may forget
			calls := 0
			d := New(config(func(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
				calls++
				if req.Domain == "first" || calls == 2 && c.interceptor != nil {
					refuse(ctx, req, v)
				}
			}))
			send(t, d, "first", nil)
			if got := send(t, d, "second", c.interceptor); got != c.want {
				t.Fatalf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}

// twice calls the handler two times.
func twice(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	_, _ = next(ctx, req)
	return next(ctx, req)
}

func TestAPanicIsAnsweredAndTold(t *testing.T) {
	admit := func(context.Context, *descriptors.Request, *engine.Verdict) {}
	late := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		_, _ = next(ctx, req)
		panic("boom")
	}
	early := func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) { panic("boom") }
	for _, c := range []struct {
		name        string
		decide      script
		write       Render
		interceptor grpc.UnaryServerInterceptor
		want        string
	}{
		{"in the decider: admitted", func(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
			refuse(ctx, req, v)
			panic("boom")
		}, answer, nil, "shop: yes "},
		{"while rendering: the admission stands", admit, unwritable, nil, "shop: yes"},
		{"while rendering: the refusal stands", refuse, unwritable, nil, "shop: no"},
		{"in an interceptor after the decision, which stands", refuse, answer, late, "shop: no"},
		{"in an interceptor before the decision: admitted", refuse, answer, early, "shop: yes"},
	} {
		var faults []any
		cfg := config(c.decide)
		cfg.Write = c.write
		cfg.OnPanic = func(fault any) { faults = append(faults, fault) }
		if got := send(t, New(cfg), "shop", c.interceptor); got != c.want {
			t.Errorf("%s: answered %q, want %q", c.name, got, c.want)
		}
		if len(faults) != 1 || faults[0] != "boom" {
			t.Errorf("%s: told of %v, want one boom", c.name, faults)
		}
	}
}

func TestAPanicWhileDecodingAdmits(t *testing.T) {
	reply := must.Get(New(config(refuse)).Handle(nil, t.Context(), func(any) error { panic("boom") }, nil))(t)
	if got := string(reply.(*Reply).Wire().Materialize()); got != ": yes" {
		t.Errorf("answered %q", got)
	}
}

func TestAPanicWhileRenderingKeepsWhatStoodBefore(t *testing.T) {
	cfg := config(refuse)
	cfg.Write = unwritable
	before := append(make([]byte, 0, 100), "before "...)
	got := must.Get(New(cfg).Answer(t.Context(), []byte("shop"), before))(t)
	if string(got) != "before shop: no" {
		t.Errorf("answered %q", got)
	}
}

func TestOnlyAnUndecodableMessageIsAnError(t *testing.T) {
	d := New(config(refuse))
	_, err := handle(t, d, "garbled", nil)
	if err == nil {
		t.Error("the handler answers bytes that are not a message")
	}
	out, err := d.Answer(t.Context(), []byte("garbled"), []byte("before"))
	if err == nil || string(out) != "before" {
		t.Errorf("Answer makes %q of bytes that are no message: %v", out, err)
	}
}

func TestInterceptorsSeeTheCallAndHaveTheLastWord(t *testing.T) {
	d := New(config(refuse))
	var seen string
	see := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		seen = info.FullMethod + " " + req.(*note).request.Domain
		return next(ctx, req)
	}
	if got := send(t, d, "shop", see); got != "shop: no since shop" {
		t.Errorf("answered %q", got)
	}
	if seen != "/post.Office/Send shop" {
		t.Errorf("the interceptor saw %q", seen)
	}
	shed := errors.New("shed")
	_, err := handle(t, d, "shop", func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
		return nil, shed
	})
	if !errors.Is(err, shed) {
		t.Errorf("the interceptor's error became %v", err)
	}
}

// registrar notes what is registered.
type registrar struct {
	desc   *grpc.ServiceDesc
	server any
}

func (r *registrar) RegisterService(desc *grpc.ServiceDesc, server any) {
	r.desc, r.server = desc, server
}

func TestTheServiceIsRegisteredUnderItsName(t *testing.T) {
	var r registrar
	d := New(config(refuse))
	d.Register(&r)
	if r.server != d || r.desc.ServiceName != "post.Office" || r.desc.Metadata != "post/office.proto" {
		t.Errorf("registered %v as %+v", r.server, r.desc)
	}
	if len(r.desc.Methods) != 1 || r.desc.Methods[0].MethodName != "Send" {
		t.Errorf("methods %+v", r.desc.Methods)
	}
}

func TestTheDeciderGetsTheCallersContext(t *testing.T) {
	var seen time.Time
	d := New(config(func(ctx context.Context, _ *descriptors.Request, _ *engine.Verdict) { seen, _ = ctx.Deadline() }))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	must.Get(d.Answer(ctx, nil, nil))(t)
	if want, _ := ctx.Deadline(); !seen.Equal(want) {
		t.Errorf("deadline %v, want %v", seen, want)
	}
}

// TestConcurrentCallsDoNotMeet sends calls with their own name, and looks for another's in the answers.
func TestConcurrentCallsDoNotMeet(t *testing.T) {
	d := New(config(refuse))
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			name := fmt.Sprintf("caller-%d", caller)
			for range 200 {
				if got := send(t, d, name, nil); got != name+": no since "+name {
					t.Errorf("%s got the answer of another: %s", name, got)
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestMemoryIsReused counts the messages that 100 calls take, and on which of them a call was released.
func TestMemoryIsReused(t *testing.T) {
	for _, c := range []struct {
		name     string
		wire     string
		decide   script
		large    bool
		reused   bool
		released int // of a message that is not reused
	}{
		{name: "an ordinary call", wire: "shop", decide: refuse, reused: true},
		{name: "an undecodable one", wire: "garbled", decide: refuse, reused: true},
		{name: "a large message", wire: "shop", decide: refuse, large: true, released: 1},
		{name: "many statuses", wire: "shop", decide: func(_ context.Context, _ *descriptors.Request,
			v *engine.Verdict) {
			v.Statuses = make([]engine.Status, KeepEntries+1)
		}},
		{name: "a panic: the message may still be read", wire: "shop",
			decide: func(context.Context, *descriptors.Request, *engine.Verdict) {
				panic("boom")
			}},
	} {
		var made []*note
		cfg := config(c.decide)
		cfg.Fresh = func() Message {
			made = append(made, &note{large: c.large})
			return made[len(made)-1]
		}
		d := New(cfg)
		for range 100 {
			_, _ = handle(t, d, c.wire, nil)
		}
		if reused := len(made) < 100; reused != c.reused {
			t.Errorf("%s: %d messages for 100 calls", c.name, len(made))
		}
		if !c.reused && made[0].released != c.released {
			t.Errorf("%s: released %d times, want %d", c.name, made[0].released, c.released)
		}
	}
}

func TestAPooledCallHoldsNothingOfTheVerdict(t *testing.T) {
	d := New(config(refuse))
	c := &call{message: new(note)}
	d.answer(t.Context(), c, nil)
	c.verdict.Match.Domain = new(descriptors.CompiledDomain)
	d.give(c)
	if c.verdict.Refused || c.verdict.Degraded != "" || c.verdict.Match.Domain != nil {
		t.Errorf("still there: %+v", c.verdict)
	}
}
