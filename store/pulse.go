package store

import (
	"context"
	"sync"
	"time"
)

// pingWithin is how long Ping waits: longer than a decision would, because a busy server is not a lost one.
const pingWithin = 100 * time.Millisecond

// pulse keeps pings to one at a time: whoever asks for many must not take the connections from the decisions.
type pulse struct {
	asking sync.Mutex // held while a ping is under way
	mu     sync.Mutex // guards last
	last   string     // what the last ping said
}

// Ping asks the server for a sign of life, and returns why there was none, as one of the reasons, or nothing. While
// another ping is under way it returns what the one before it said.
func (r *Redis) Ping(ctx context.Context) string {
	p := &r.pulse
	if !p.asking.TryLock() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.last
	}
	defer p.asking.Unlock()
	why := r.ping(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = why
	return why
}

func (r *Redis) ping(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, pingWithin)
	defer cancel()
	err := r.client.Ping(ctx).Err()
	if err == nil {
		return ""
	}
	label := reason(err)
	r.warmer.wake(label)
	return label
}
