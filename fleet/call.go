package fleet

import (
	"errors"
	"sync/atomic"
	"time"
)

// Why a call brought no reply, besides what connections and servers say.
var (
	errSilent   = errors.New("the server owes replies and sends nothing")
	errGivenUp  = errors.New("the connection was given up, because the server sent nothing for too long")
	errPatience = errors.New("the reply did not come in time")
	errDeadline = errors.New("the caller's deadline is near, and this process got too little of the processors")
	errOverload = errors.New("more calls are under way than can be answered in time")
	errNoLink   = errors.New("there was no connection in time")
	errUnsent   = errors.New("the connection ended before the call was sent")
	errClosed   = errors.New("the connections are closed")
)

// Call is one command on its way to a server and back, kept from call to call for its memory. One goroutine uses it at a time,
// from Node.Do until that returns, and if the call is pending then, until Adopt's function is called.
type Call struct {
	Wire   []byte // the command, written by AppendCommand and AppendWord
	Key    string // the key that chooses the server; empty: any server will do
	Caller string // who asks, so that no caller takes the turns of the others under overload; empty: that is not known
	Reply  Reply  // of a call that succeeded; valid until the call is used again

	state atomic.Uint32
	done  chan error // how the wait ended; nil: there is a reply
	late  func(*Call, error)
	fault error  // why there never will be a reply, of a call that is over
	text  []byte // memory of Reply

	batch              *Batch // that the call may be part of; nil: none
	keys               int    // of the call, if it has a batch
	keysAt, argumentAt int    // where they and the argument begin in Wire
	members            int    // calls that the reply to a batch is for, in the first of them; 0: the call is alone

	asking bool          // the server is asked for a key that is on its way to it
	moved  bool          // the server that was asked first sent it to another one
	skip   int           // replies that come before the one that counts
	sent   time.Duration // process time of the link when it came; guarded by the link's mutex, as are all below
	due    time.Duration // likewise: when its patience ends
	began  time.Duration // on the wall: when it came
	until  time.Duration // likewise: when its caller has to be answered, however much of its patience is left; 0: no caller has a deadline
	spent  time.Duration // process time that the calls which were answered so far have waited
}

// The states of a call.
const (
	waiting  = iota // the caller waits
	answered        // the caller has its answer, and nothing is to come
	left            // the caller has stopped to wait, and the reply may still come
	over            // it came, or never will, before the call was adopted
	adopted         // late is to be called
)

// Pending reports whether the caller stopped to wait and the reply may still come. If so, the call must not be used again, but for
// Adopt.
func (c *Call) Pending() bool {
	s := c.state.Load()
	return s == left || s == over
}

// Sent reports whether the call was handed to a connection, whatever became of it.
func (c *Call) Sent() bool { return c.began != 0 }

// Spent is how much of its patience a call that is not pending has used up: the process time that it has waited for replies since Do began. It is less than
// what has passed on the wall while this process got no processor.
func (c *Call) Spent() time.Duration { return c.spent }

// Adopt hands over a pending call: f is called once, with the call and why there never will be a reply, or nil and the reply in the
// call. It may be called at once, or from the goroutine that reads replies, so it must not block. Wire stays untouched until then.
func (c *Call) Adopt(f func(c *Call, err error)) {
	c.late = f
	if !c.state.CompareAndSwap(left, adopted) {
		f(c, c.fault)
	}
}

// begin makes the call ready to be sent.
func (c *Call) begin() {
	if c.done == nil {
		c.done = make(chan error, 1)
	}
	c.state.Store(waiting)
	c.fault, c.Reply, c.skip, c.members = nil, Reply{}, 0, 0
	if c.asking {
		c.skip = 1
	}
}

// leave ends the caller's wait without a reply, and reports whether it still waited.
func (c *Call) leave(err error) bool {
	if !c.state.CompareAndSwap(waiting, left) {
		return false
	}
	c.done <- err
	return true
}

// finish ends the call with the reply that is in it, or with the reason why there never will be one.
func (c *Call) finish(err error) {
	if c.state.CompareAndSwap(waiting, answered) {
		c.done <- err
		return
	}
	c.fault = err
	if !c.state.CompareAndSwap(left, over) {
		c.late(c, err)
	}
}

// fill copies a reply into the call, and returns the error that it is, if it is one.
func (c *Call) fill(b []byte) error {
	c.text = append(c.text[:0], b...)
	c.Reply = parse(c.text)
	if c.Reply.Kind == failure {
		return ReplyError(c.Reply.Data)
	}
	return nil
}

// fillText makes the call's reply a text of two parts.
func (c *Call) fillText(head, rest []byte) {
	c.text = append(append(c.text[:0], head...), rest...)
	c.Reply = Reply{Kind: Text, Data: c.text}
}

// askingFirst goes before a command for a key that is on its way to the server.
var askingFirst = command("ASKING")

// append appends the bytes that are to be written.
func (c *Call) append(out []byte) []byte {
	if c.asking {
		out = append(out, askingFirst...)
	}
	return append(out, c.Wire...)
}
