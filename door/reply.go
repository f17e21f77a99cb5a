package door

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// replyBytes is the capacity of a new reply. Below some size grpc does not give buffers back, so it must be well above that.
const replyBytes = 2 << 10

// Reply is an answer as the gRPC codec takes it.
type Reply struct {
	wire    []byte
	buffers [1]mem.Buffer
	again   recycler
}

// newReply makes a reply that returns to a pool.
func newReply(pool *sync.Pool) *Reply {
	r := &Reply{wire: make([]byte, 0, replyBytes)}
	r.again = recycler{reply: r, pool: pool}
	return r
}

// Wire hands over the answer's wire bytes. It is for one caller, once: when the buffers are freed, another call gets their
// memory and the reply's.
func (r *Reply) Wire() mem.BufferSlice {
	if r.again.pool == nil {
		r.buffers[0] = mem.SliceBuffer(r.wire)
		return r.buffers[:]
	}
	r.buffers[0] = mem.NewBuffer(&r.wire, &r.again)
	return r.buffers[:]
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

// Put is told that the last reader is done.
func (r *recycler) Put(*[]byte) {
	if cap(r.reply.wire) <= KeepBytes {
		r.pool.Put(r.reply)
	}
}
