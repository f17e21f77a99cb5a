package door

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// pooled is a door whose new replies are counted.
func pooled(decide script) (d *Door, made *int) {
	d, made = New(config(decide)), new(int)
	fresh := d.replies.New
	d.replies.New = func() any {
		*made++
		return fresh()
	}
	return d, made
}

func TestAReplysMemoryIsUsedAgainOnceItIsFreed(t *testing.T) {
	long := strings.Repeat("long", KeepBytes/4)
	broken := func(context.Context, *descriptors.Request, *engine.Verdict) { panic("boom") }
	for _, c := range []struct {
		name   string
		wire   string
		decide script
		free   bool
		reused bool
	}{
		{name: "an ordinary answer", wire: "shop", decide: refuse, free: true, reused: true},
		{name: "one that is still being sent", wire: "shop", decide: refuse},
		{name: "a long one", wire: long, decide: refuse, free: true},
		{name: "a panic: something may still write to it", wire: "shop", decide: broken, free: true},
	} {
		d, made := pooled(c.decide)
		dec := func(v any) error { return v.(*note).ParseWire([]byte(c.wire)) }
		for range 100 {
			reply, err := d.Handle(nil, t.Context(), dec, nil)
			if err != nil {
				t.Fatal(err)
			}
			sent := reply.(*Reply).Wire()
			if c.free {
				sent.Free()
			}
		}
		if reused := *made < 100; reused != c.reused {
			t.Errorf("%s: %d replies for 100 calls", c.name, *made)
		}
	}
}

func TestAReplyThatIsBeingSentDoesNotChange(t *testing.T) {
	d, _ := pooled(refuse)
	dec := func(v any) error { return v.(*note).ParseWire([]byte("mine")) }
	reply, err := d.Handle(nil, t.Context(), dec, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := reply.(*Reply).Wire()
	sent.Ref() // by the transport
	sent.Free()
	for range 20 { // the pool may forget
		reply, err := d.Handle(nil, t.Context(), func(v any) error { return v.(*note).ParseWire([]byte("else")) }, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply.(*Reply).Wire().Free()
	}
	if got := string(sent.Materialize()); got != "mine: no since mine" {
		t.Errorf("the reply became %q", got)
	}
}

func TestACallAllocatesNothing(t *testing.T) {
	d := New(config(func(_ context.Context, _ *descriptors.Request, v *engine.Verdict) { v.Refused = true }))
	ctx, dec := t.Context(), func(v any) error {
		v.(*note).request.Domain = "shop"
		return nil
	}
	pass := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(ctx, req)
	}
	for name, interceptor := range map[string]grpc.UnaryServerInterceptor{"alone": nil, "with an interceptor": pass} {
		allocs := testing.AllocsPerRun(1000, func() {
			reply, err := d.Handle(nil, ctx, dec, interceptor)
			if err != nil {
				t.Fatal(err)
			}
			reply.(*Reply).Wire().Free()
		})
		if allocs > allowed {
			t.Errorf("%s: %v allocations for a call", name, allocs)
		}
	}
}
