package publish

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	awayFor    = time.Second            // how long an answer holds: anybody may ask, as often as they like
	awayWithin = 300 * time.Millisecond // for a sign of life of all servers
)

// away is why Redis does not answer. The zero value asks it first.
type away struct {
	mu    sync.Mutex // guards the rest, and lets one at a time ask
	until time.Time
	err   error
}

// Away is why a server of Redis does not answer this control, or nil. It asks them, unless that was done a moment ago.
func (p *Publisher) Away(ctx context.Context) error {
	a := &p.away
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) {
		return a.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awayWithin) // the answer is for others, too
	defer cancel()
	a.err = nil
	for _, s := range p.cfg.Redis.Servers() {
		if a.err == nil {
			a.err = s.Ping(ctx)
		}
	}
	var op *net.OpError
	switch {
	case errors.As(a.err, &op):
		a.err = op // without the words around it
	case a.err != nil && ctx.Err() != nil:
		a.err = fmt.Errorf("no answer within %v: %w", awayWithin, a.err)
	}
	a.until = time.Now().Add(awayFor)
	return a.err
}
