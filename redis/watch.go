package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookEvery    = time.Second            // how old may be what is known of the servers
	lookPause    = 200 * time.Millisecond // the least time between two looks
	answerWithin = 500 * time.Millisecond // for a server to answer a look
)

// watch looks again and again where the servers are: which one is the master, or which holds which slot.
type watch struct {
	fault   atomic.Pointer[error] // of the last look
	looked  chan struct{}         // closed after the first look
	wanted  chan struct{}         // a look is wanted now
	ctx     context.Context       // ends with the client
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newWatch() *watch {
	w := &watch{looked: make(chan struct{}), wanted: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// run looks until the end. A look that failed is soon followed by another one.
func (w *watch) run(c *Client, look func(context.Context) error) {
	for first := true; first || w.ctx.Err() == nil; first = false {
		err := errPanicked
		c.Guard(func() { err = look(w.ctx) })
		w.fault.Store(&err)
		if first {
			close(w.looked)
		}
		if err != nil {
			w.want()
		}
		pause(w.ctx, lookPause)
		select {
		case <-w.wanted:
		case <-time.After(lookEvery - lookPause):
		case <-w.ctx.Done():
		}
	}
}

// want asks for a look. There is nothing to look for without a watch.
func (w *watch) want() {
	if w == nil {
		return
	}
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// await waits for the first look, and returns the error of the last one.
func (w *watch) await(ctx context.Context) error {
	select {
	case <-w.looked:
		return *w.fault.Load()
	case <-ctx.Done():
		return errUnknown
	}
}

func (w *watch) close() {
	w.cancel()
	w.running.Wait()
}

// pause waits, and reports whether the context still lasts.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
