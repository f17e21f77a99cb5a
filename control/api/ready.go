package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
)

// readyFor is how long the answer of the database holds: anybody may ask for the readiness, as often as they like.
const readyFor = time.Second

// readiness is whether changes can be made. The zero value asks the database first.
type readiness struct {
	mu    sync.Mutex // guards the rest, and lets one at a time ask
	until time.Time
	err   error
}

// check asks the database, unless that was done a moment ago.
func (r *readiness) check(ctx context.Context, d *database.DB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().Before(r.until) {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), database.ConnectWithin) // the answer is for others, too
	defer cancel()
	r.err = d.CheckSchema(ctx)
	r.until = time.Now().Add(readyFor)
	return r.err
}

// ready answers whether changes can be made.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	err := a.readiness.check(r.Context(), a.Database)
	if err != nil {
		admin.NewProblem(http.StatusServiceUnavailable, "%v", err).Write(w)
		return
	}
	admin.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}
