package api

import (
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
)

const (
	loadWithin  = 30 * time.Minute // for a whole load
	loadSilence = time.Minute      // without a byte of it
	loadMost    = 4 << 30          // bytes of a load: ten million users are some 1 GiB of JSON
	loadsMost   = 4                // under way at once: each has a connection for as long as its body takes
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
		return admin.NewProblem(http.StatusServiceUnavailable,
			"another load of users of %s is under way: try again when it has ended", domain)
	case len(l.domains) >= loadsMost:
		return admin.NewProblem(http.StatusServiceUnavailable,
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

// loadUsers serves POST …/users:load. The body is read while it is copied into the database.
func (a *API) loadUsers(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	var lines *database.UserLines
	switch kind {
	case "text/csv":
		lines = database.NewUserLines(database.CsvLines(c.r.Body))
	case "application/x-ndjson":
		lines = database.NewUserLines(database.JsonLines(c.r.Body))
	default:
		return nil, admin.NewProblem(http.StatusUnsupportedMediaType, "the content type is %q: send text/csv or application/x-ndjson", kind)
	}
	err = a.loads.begin(c.domain())
	if err != nil {
		return nil, err
	}
	defer a.loads.end(c.domain())
	return a.Database.LoadUsers(c.ctx, c.who, c.domain(), lines)
}
