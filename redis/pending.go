package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// Script is a Lua script. Each of its runs gets "0" as its first argument, and after it the arguments of all requests
// in the run. It replies with a list of integers: the first one is for all requests, then come those of each.
type Script struct {
	text, sha any // strings, as words of a command
	alone     bool
}

// NewScript makes a script. Of one that is alone each request has a run of its own.
func NewScript(text string, alone bool) *Script {
	sum := sha1.Sum([]byte(text)) // Redis names scripts by it
	return &Script{text: text, sha: hex.EncodeToString(sum[:]), alone: alone}
}

// Pending is one request on its way to a server and back. All of it is its own: nothing is shared with its caller. It
// may be used again after Done was received from, after Leave returned false, or after Late was called.
type Pending struct {
	Script    *Script
	Keys      []string // at least one, all in one slot
	Arguments []string
	Charges   int            // which count towards the size of a batch
	Due       time.Time      // when its caller stops to wait; zero: never
	Replies   int            // how many integers of the script's reply are its own, without the first one
	Late      func(*Pending) // called once by a worker, when the request is over after its caller left; may be nil
	Keep      bool           // send it even if its caller left before its batch was formed

	Reply []int64 // the first integer of the script's reply, then its own
	Err   error   // why the reply is missing; MayHaveRun returns whether the script may have run all the same

	state atomic.Uint32
	done  chan struct{} // capacity 1
	group int           // how many requests, with this one, are never parted; 0 for all but the first of them
	since time.Time     // of the first of a group: when it began to wait
	ahead int           // of the first of a group: how many others were to be answered before
}

// The states of a Pending.
const (
	waiting = iota // the caller waits
	over           // the caller has its answer
	left           // the caller has stopped to wait
)

// Done is signalled once, when Reply or Err is there, unless Leave returned true before. It is there after Do.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Leave ends the caller's wait, and reports whether it still waited: then the request must not be touched any more,
// and Late is called when it is over, also when it never is sent. False: it is over, and Reply or Err is there.
func (p *Pending) Leave() bool {
	if p.state.CompareAndSwap(waiting, left) {
		return true
	}
	p.done = nil // the signal may come after this
	return false
}

// begin makes the request ready to wait.
func (p *Pending) begin() {
	if p.done == nil {
		p.done = make(chan struct{}, 1)
	}
	p.Reply, p.Err, p.group = p.Reply[:0], errPanicked, 0 // unless more becomes known
	p.state.Store(waiting)
}

// finish signals that the request is over, and reports whether its caller has left.
func (p *Pending) finish() (late bool) {
	done := p.done // once the state is set, the caller may use the request again
	if !p.state.CompareAndSwap(waiting, over) {
		return true
	}
	done <- struct{}{}
	return false
}
