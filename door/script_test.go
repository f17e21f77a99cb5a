package door

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// note is a message of the simplest protocol: its wire bytes are the domain.
type note struct {
	request  descriptors.Request
	large    bool
	released int
}

func (n *note) ParseWire(wire []byte) error {
	if string(wire) == "garbled" {
		return errors.New("garbled")
	}
	n.request.Domain = string(wire)
	return nil
}

func (n *note) Asked() *descriptors.Request { return &n.request }

func (n *note) Release() (keep bool) {
	n.released++
	n.request = descriptors.Request{}
	return !n.large
}

// script returns the verdicts of the test.
type script func(ctx context.Context, req *descriptors.Request, v *engine.Verdict)

func (s script) Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict) {
	s(ctx, req, v)
}

// refuse returns an error with its reason.
func refuse(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	v.Refused, v.Degraded = true, "since "+req.Domain
}

// answer writes who asked and what the verdict is.
func answer(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	b = append(bare(b, req, v), ' ')
	return append(b, v.Degraded...)
}

func bare(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	b = append(b, req.Domain...)
	if v.Refused {
		return append(b, ": no"...)
	}
	return append(b, ": yes"...)
}

// unwritable gets half an answer out.
func unwritable(b []byte, _ *descriptors.Request, _ *engine.Verdict) []byte {
	_ = append(b, "half an answer"...)
	panic("boom")
}

// config is one of a door that notes go through.
func config(decide script) Config {
	return Config{
		Service: grpc.ServiceDesc{ServiceName: "post.Office", Metadata: "post/office.proto"}, Method: "Send",
		Engine: decide, Fresh: func() Message { return new(note) }, Write: answer, Bare: bare,
	}
}

// handle runs the gRPC handler as a server would.
func handle(t *testing.T, d *Door, wire string, interceptor grpc.UnaryServerInterceptor) (string, error) {
	t.Helper()
	dec := func(v any) error { return v.(*note).ParseWire([]byte(wire)) }
	reply, err := d.Handle(d, t.Context(), dec, interceptor)
	if err != nil {
		return "", err
	}
	return string(reply.(*Reply).Wire().Materialize()), nil
}

// send is handle where no error is expected.
func send(t *testing.T, d *Door, wire string, interceptor grpc.UnaryServerInterceptor) string {
	t.Helper()
	got, err := handle(t, d, wire, interceptor)
	if err != nil {
		return fmt.Sprintf("error: %v", err)
	}
	return got
}
