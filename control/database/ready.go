package database

import (
	"context"
	"sync"
	"time"
)

// readyFor is how long the answer of the database holds: anybody may ask for the readiness, as often as they like.
const readyFor = time.Second

// readiness is whether changes can be made. The zero value asks the database first.
type readiness struct {
	mu    sync.Mutex // guards the rest, and lets one at a time ask
	until time.Time
	err   error
}

// Ready fails while changes cannot be made. It asks the database, unless that was done a moment ago.
func (d *DB) Ready(ctx context.Context) error {
	r := &d.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectWithin) // the answer is for others, too
	defer cancel()
	r.err = d.CheckSchema(ctx)
	r.until = time.Now().Add(readyFor)
	return r.err
}
