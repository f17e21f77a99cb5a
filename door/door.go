// Package door carries one unary call from wire bytes to wire bytes, and recovers from panics on the way: what both
// gRPC doors share.
//
// A call is decoded, decided and rendered in memory that later calls use again. Only a message that cannot be decoded
// is an error. A panic in the decider admits; one after the decision keeps it and answers with the codes alone.
package door

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// Bounds of what is kept for the next call. A message above them is rare, and keeping its memory would be a leak.
const (
	KeepBytes   = 64 << 10 // of a message, and of an answer
	KeepEntries = 1 << 10  // of each list
)

// Decider decides. It is engine.Engine, and a script in tests. Decide overwrites the verdict and keeps neither
// argument.
type Decider interface {
	Decide(ctx context.Context, req *descriptors.Request, v *engine.Verdict)
}

// Message is what a door reads. One goroutine uses it at a time, for one call after the other.
type Message interface {
	// ParseWire reads a message and forgets the one before. It does not keep the bytes. An error means that they are
	// not such a message.
	ParseWire(wire []byte) error
	// Asked returns what the message asks, which is valid until it is released.
	Asked() *descriptors.Request
	// Release ends the message's call and reports whether its memory is worth keeping. If so, it has let go of all that
	// the client sent.
	Release() (keep bool)
}

// ender is a message that has a Share. End gives that back when the call is over, and leaves the rest of the message as
// it is.
type ender interface{ End() }

// Render appends what a verdict comes to.
type Render func(b []byte, req *descriptors.Request, v *engine.Verdict) []byte

// Config is what a Door needs. All but OnPanic must be set.
type Config struct {
	Name    string           // of the door, in metrics, logs and traces
	Service grpc.ServiceDesc // as generated: its name and, for reflection, its file are used
	Method  string           // the method's name in it
	Engine  Decider
	Fresh   func() Message // makes one without content
	Write   Render         // the whole answer
	Bare    Render         // what is answered when Write has panicked: it must not fail, and accepts an empty verdict

	// OnPanic gets each panic, and each verdict that does not fit its request. The call is answered all the same. It
	// may be called from many goroutines. Default: nothing.
	OnPanic func(fault any)
}

// Door answers the calls of one method. Make one with New. Any number of goroutines may use it.
type Door struct {
	config  Config
	info    grpc.UnaryServerInfo // what interceptors get; the same for every call
	calls   sync.Pool            // of *call
	replies sync.Pool            // of *Reply
}

// New makes a door.
func New(config Config) *Door {
	if config.OnPanic == nil {
		config.OnPanic = func(any) {}
	}
	d := &Door{config: config}
	d.info = grpc.UnaryServerInfo{Server: d, FullMethod: "/" + config.Service.ServiceName + "/" + config.Method}
	d.calls.New = func() any { return d.newCall() }
	d.replies.New = func() any { return newReply(&d.replies) }
	return d
}

// call is the memory of one call, used again by later ones.
type call struct {
	message Message
	verdict engine.Verdict
	decided bool              // the verdict may hold something
	spoilt  bool              // something panicked: this memory may still be in use elsewhere
	handler grpc.UnaryHandler // decides this call; made once, because one per call would be an allocation
}

func (d *Door) newCall() *call {
	c := &call{message: d.config.Fresh()}
	c.handler = func(ctx context.Context, _ any) (any, error) { return d.reply(ctx, c), nil }
	return c
}

func (d *Door) acquire() *call { return d.calls.Get().(*call) }

// give keeps the call's memory for another one, unless it is too much or was spoilt.
func (d *Door) give(c *call) {
	if m, ok := c.message.(ender); ok {
		m.End()
	}
	if c.spoilt || cap(c.verdict.Statuses) > KeepEntries || !c.message.Release() {
		return
	}
	c.verdict.Empty()
	c.decided = false
	d.calls.Put(c)
}

// Register adds the service to a gRPC server. Its codec must know messages by ParseWire and replies by Wire.
func (d *Door) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: d.config.Service.ServiceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: d.config.Method, Handler: d.Handle}},
		Metadata:    d.config.Service.Metadata,
	}, d)
}

// Handle is the gRPC handler. It fails only when the message cannot be decoded, or when an interceptor does. A call
// that a panic outside of Decide and of rendering has broken off is answered by its verdict, which admits if it is
// empty.
func (d *Door) Handle(_ any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (
	reply any, err error) {
	c := d.acquire()
	defer d.give(c)
	if !d.guard(c, func() { reply, err = d.handle(ctx, c, dec, interceptor) }) {
		return &Reply{wire: d.config.Bare(nil, c.message.Asked(), &c.verdict)}, nil
	}
	return reply, err
}

// guard calls f and reports whether f returned. After a panic the memory of the call is not used again.
func (d *Door) guard(c *call, f func()) (returned bool) {
	returned = engine.Guard(d.config.OnPanic, f)
	c.spoilt = c.spoilt || !returned
	return returned
}

// handle decodes the message, and answers it behind the interceptor.
func (d *Door) handle(ctx context.Context, c *call, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any,
	error) {
	err := dec(c.message)
	if err != nil {
		return nil, err
	}
	if interceptor == nil {
		return d.reply(ctx, c), nil
	}
	return interceptor(ctx, c.message, &d.info, c.handler)
}

// reply answers the call in memory that comes back once the answer is sent. After a panic it does not come back.
func (d *Door) reply(ctx context.Context, c *call) *Reply {
	r := d.replies.Get().(*Reply)
	r.wire = d.answer(ctx, c, r.wire[:0])
	if c.spoilt {
		return &Reply{wire: r.wire}
	}
	r.address(ctx)
	return r
}

// Answer decides the request in the wire bytes and appends the answer's to answer. An error means that the bytes are
// not message; anything else gets a decision.
func (d *Door) Answer(ctx context.Context, request, answer []byte) ([]byte, error) {
	c := d.acquire()
	defer d.give(c)
	err := c.message.ParseWire(request)
	if err != nil {
		return answer, err
	}
	return d.answer(ctx, c, answer), nil
}

// answer decides the call's message and appends the answer.
func (d *Door) answer(ctx context.Context, c *call, b []byte) []byte {
	d.decide(ctx, c)
	return d.render(c, b)
}

// decide fills the call's verdict. It empties one that is left from before: an interceptor may call twice, and a
// decider may fill in only a part. After a panic it is empty, which admits.
func (d *Door) decide(ctx context.Context, c *call) {
	if c.decided {
		c.verdict.Empty()
	}
	c.decided = true
	req := c.message.Asked()
	req.Door = d.config.Name
	if !d.guard(c, func() { d.config.Engine.Decide(ctx, req, &c.verdict) }) {
		c.verdict = engine.Verdict{}
		return
	}
	if got, want := len(c.verdict.Statuses), len(req.Descriptors); got != want {
		d.config.OnPanic(fmt.Errorf("a verdict must have a status for each of %d descriptors, not %d", want, got))
	}
}

// render appends the answer. After a panic the codes alone are appended, for the decision stands.
func (d *Door) render(c *call, b []byte) (out []byte) {
	if !d.guard(c, func() { out = d.config.Write(b, c.message.Asked(), &c.verdict) }) {
		return d.config.Bare(b[:len(b):len(b)], c.message.Asked(), &c.verdict)
	}
	return out
}
