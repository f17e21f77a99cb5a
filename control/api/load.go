package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/httpapi"
)

const (
	loadWithin = 30 * time.Minute // for a whole load
	loadMost   = 4 << 30          // bytes of a load: ten million users are some 1 GiB of JSON
	loadsMost  = 4                // under way at once: each has a connection for as long as its body takes
)

// loads are the domains whose users are being loaded. A domain has one load at a time, so that a caller who is limited
// to some domains does not keep the others from theirs.
type loads struct {
	mu      sync.Mutex // guards domains
	domains map[string]bool
}

// begin begins a load, which end has to follow.
func (l *loads) begin(domain string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.domains[domain]:
		return httpapi.NewProblem(http.StatusServiceUnavailable,
			"another load of users of %s is under way: try again when it has ended", domain)
	case len(l.domains) >= loadsMost:
		return httpapi.NewProblem(http.StatusServiceUnavailable,
			"%d loads of users are under way: try again when one has ended", loadsMost)
	case l.domains == nil:
		l.domains = map[string]bool{}
	}
	l.domains[domain] = true
	return nil
}

// end ends a load.
func (l *loads) end(domain string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.domains, domain)
}

// loadRequest is the inputs of a load: a line for each user.
type loadRequest struct {
	inDomain
	Lines httpapi.Lines `body:"text/csv application/x-ndjson"`
}

// loadUsers serves POST …/users:load. The body is read while it is copied into the database.
func (a *API) loadUsers(ctx context.Context, in *loadRequest) (*database.Loaded, error) {
	read := database.JsonLines
	if in.Lines.Kind == "text/csv" {
		read = database.CsvLines
	}
	err := a.loads.begin(in.Domain)
	if err != nil {
		return nil, err
	}
	defer a.loads.end(in.Domain)
	return a.Database.LoadUsers(ctx, actor(ctx), in.Domain, database.NewUserLines(read(in.Lines)))
}
