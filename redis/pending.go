package redis

import (
	"sync/atomic"
	"time"
)

// Script is a Lua script. Each of its runs gets "0" as its first argument, and after it the arguments of all requests in the run.
type Script struct {
	text, sha string
	alone     bool
}

// NewScript makes a script. One that is alone has each request in a run of its own.
func NewScript(text string, alone bool) *Script { panic("redis: soon") }

// Pending is one request on its way to a server and back. All of it is its own; nothing is shared with whoever made it. It may be used
// again after Done was signalled, or after Late was called.
type Pending struct {
	Script    *Script
	Keys      []string // all in one slot
	Arguments []string
	Charges   int            // which counts towards the size of a batch
	Due       time.Time      // when its caller stops to wait; zero: never
	Replies   int            // how many integers of the script's reply are its own, without the first one, which is for all
	Late      func(*Pending) // called once, by a worker, when the request is over after its caller left; nil: nothing is
	Keep      bool           // send it even if its caller left before its batch was formed

	Reply []int64 // the first integer of the script's reply, then its own; of a script that is alone the whole reply
	Err   error   // why there is no reply; MayHaveRun returns whether the script may have run all the same

	state atomic.Uint32
	done  chan struct{}
}

// Done is signalled once, when Reply or Err is there, unless Leave returned true before.
func (p *Pending) Done() <-chan struct{} { panic("redis: soon") }

// Leave ends the caller's wait, and reports whether it still waited: then the request must not be touched any more, and Late is called when it is
// over, also when it never is sent. False: it is over, and Done is signalled.
func (p *Pending) Leave() bool { panic("redis: soon") }
