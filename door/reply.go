package door

import (
	"context"
	"net"
	"runtime"
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"

	"github.com/spillway-mesh/spillway/door/connlimit"
)

// replyBytes is the capacity of a new reply. Below some size grpc does not give buffers back, so it must be well above
// that.
const replyBytes = 2 << 10

// longReply is how long an answer is that counts for its peer until the peer has taken it. A shorter one is part of
// what its call counts for.
const longReply = 1 << 10

// Reply is an answer as the gRPC codec takes it.
type Reply struct {
	wire    []byte
	buffers [1]mem.Buffer
	again   recycler
	to      net.Addr // the peer, of a long answer; else nil
	held    *held
}

// held is what a reply counts for its peer. It does not lead to the reply.
type held struct {
	to    net.Addr // nil: it counts nothing
	bytes int
}

// hold counts bytes.
func (h *held) hold(to net.Addr, bytes int) {
	h.to, h.bytes = to, bytes
	connlimit.Hold(to, bytes)
}

// release gives them back.
func (h *held) release() {
	if h.to != nil {
		connlimit.Hold(h.to, -h.bytes)
		h.to = nil
	}
}

// newReply makes a reply that returns to a pool.
func newReply(pool *sync.Pool) *Reply {
	r := &Reply{wire: make([]byte, 0, replyBytes), held: new(held)}
	r.again = recycler{reply: r, pool: pool}
	// gRPC frees no answer that comes after its client broke off the call
	runtime.AddCleanup(r, (*held).release, r.held)
	return r
}

// Wire hands over the answer's wire bytes. It is for one caller, once: when the buffers are freed, another call gets
// their memory and the reply's.
func (r *Reply) Wire() mem.BufferSlice {
	if r.again.pool == nil {
		r.buffers[0] = mem.SliceBuffer(r.wire)
		return r.buffers[:]
	}
	if r.to != nil {
		r.held.hold(r.to, cap(r.wire))
	}
	r.buffers[0] = mem.NewBuffer(&r.wire, &r.again)
	return r.buffers[:]
}

// address notes whose answer it is, if it is a long one.
func (r *Reply) address(ctx context.Context) {
	if len(r.wire) < longReply {
		return
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.to = p.Addr
	}
}

// recycler is the pool that a reply's buffer believes to come from.
type recycler struct {
	reply *Reply
	pool  *sync.Pool // nil: the reply is not used again
}

// Get is not asked for: the bytes are the reply's.
func (r *recycler) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// The last reader calls Put.
func (r *recycler) Put(*[]byte) {
	r.reply.to = nil
	r.reply.held.release()
	if cap(r.reply.wire) <= KeepBytes {
		r.pool.Put(r.reply)
	}
}
