package api

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/redis"
)

// ready answers whether changes can be made. While Redis is away they can: they are kept. The reason of that is in the
// body, in a word alone, because everybody may ask.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	err := a.Database.Ready(r.Context())
	if err != nil {
		httpapi.NewProblem(http.StatusServiceUnavailable, "%v", err).Write(w)
		return
	}
	away := a.Publisher.Away(r.Context())
	if away == nil {
		live(w, r)
		return
	}
	httpapi.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok", "degraded": "redis: " + redis.Reason(away) +
		"; changes are kept, and in force once Redis answers"})
}

// live answers that the program runs.
func live(w http.ResponseWriter, _ *http.Request) {
	httpapi.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// Status is how a control does.
type Status struct {
	Leads    bool      `json:"leads"`
	Pending  int64     `json:"pending"`            // changes that are not in Redis yet
	Mended   int64     `json:"mended"`             // profiles and documents that this control has written
	WalkedAt time.Time `json:"walked_at,omitzero"` // when this control last compared all of Redis with the database
	Problem  string    `json:"problem"`            // why it cannot publish now; empty: it can
	Caller   string    `json:"caller"`             // who asks
	Role     string    `json:"role"`               // of the caller
	Domains  []string  `json:"domains"`            // that the caller may use; empty: all
}

// RecordStatus is how the copy of the record does.
type RecordStatus struct {
	Copies  bool                    `json:"copies"`  // this control copies
	Problem string                  `json:"problem"` // why it cannot; empty: it can
	Streams []database.RecordStream `json:"streams"`
}

// ErasureList is erasures.
type ErasureList struct {
	Erasures []database.Erasure `json:"erasures"`
}

// AuditList is lines of the audit.
type AuditList struct {
	Entries []database.Entry `json:"entries"`
}

// inErasure is the path of an erasure.
type inErasure struct {
	Erasure int64 `path:"erasure" in:"1.."` // the number of the erasure
}

// auditRequest asks for lines of the audit.
type auditRequest struct {
	history
	Domain string `query:"domain"`                                           // of one domain
	Kind   string `query:"kind" one:"rules tier user key tenant ip api_key"` // of what was changed
	Name   string `query:"name"`                                             // of what was changed
}

// addRest adds what is about no domain, or several, erasures and loads.
func (a *API) addRest(api *httpapi.API) {
	d := a.Database
	any := func(path, summary string) httpapi.Op {
		op := get(path, summary)
		op.AnyDomain = true
		return op
	}
	httpapi.Add(api, any("/v1/status", "Whether this control leads, and what is left to do."), a.status)
	httpapi.Add(api, get("/v1/record", "How the copy of usage and events does."), a.record)
	load := change("POST", "/users:load", httpapi.Operate,
		"Make many users what the lines of the body say: all of them or none. Others stay.")
	load.Made, load.Within, load.MaxBody = false, loadWithin, loadMost
	httpapi.Add(api, load, a.loadUsers)
	erase := change("DELETE", "/identities/{kind}/{name...}", httpapi.Administer,
		"Erase what is known of an identity, in all places. The answer is the erasure, which the leading control does.")
	erase.Private = true
	httpapi.Add(api, erase, func(ctx context.Context, in *inIdentity) (*database.Erasure, error) {
		s, err := in.subject()
		if err != nil {
			return nil, err
		}
		return d.AskErasure(ctx, actor(ctx), s)
	})
	httpapi.Add(api, any("/v1/erasures", "Erasures, the newest first."),
		func(ctx context.Context, in *history) (*ErasureList, error) {
			all, err := d.Erasures(ctx, httpapi.CallerOf(ctx).Domains, in.Before, in.Limit)
			return &ErasureList{all}, err
		})
	httpapi.Add(api, any("/v1/erasures/{erasure}", "An erasure: its state, and what each place had and has."),
		func(ctx context.Context, in *inErasure) (*database.Erasure, error) {
			e, err := d.Erasure(ctx, in.Erasure)
			if err == nil && !httpapi.CallerOf(ctx).May(e.Domain) {
				return nil, database.ErrNotFound
			}
			return e, err
		})
	httpapi.Add(api, any("/v1/audit", "Who changed what, the newest first."), a.audit)
}

// status serves GET /v1/status.
func (a *API) status(ctx context.Context, _ *httpapi.None) (s *Status, err error) {
	now, leads, c := a.Publisher.Status(), a.Leader.Status(), httpapi.CallerOf(ctx)
	s = &Status{
		Leads: leads.Leads, Mended: now.Mended, WalkedAt: now.Walked, Problem: leads.Problem(),
		Caller: c.Name, Role: TokenFile.Roles.Word(c.Role), Domains: c.Domains,
	}
	if s.Problem != "" && c.Domains != nil { // it may name a domain
		s.Problem = "this control cannot publish now"
	}
	s.Pending, err = a.Database.Pending(ctx)
	return s, err
}

// audit serves GET /v1/audit.
func (a *API) audit(ctx context.Context, in *auditRequest) (*AuditList, error) {
	c := httpapi.CallerOf(ctx)
	if in.Domain != "" && !c.May(in.Domain) {
		return nil, c.Refuse("another one")
	}
	about := database.Subject{Domain: in.Domain, Kind: in.Kind, Name: in.Name}
	all, err := a.Database.Audit(ctx, c.Domains, about, in.Before, in.Limit)
	return &AuditList{all}, err
}

// record serves GET /v1/record.
func (a *API) record(ctx context.Context, _ *httpapi.None) (*RecordStatus, error) {
	streams, err := a.Database.Record(ctx)
	if err != nil {
		return nil, err
	}
	stats := a.Copier.Stats()
	queued, wrong := a.Copier.Queued(ctx)
	for i := range streams {
		s := &streams[i]
		if n, known := queued[s.Stream]; known && wrong == nil {
			s.Queued = &n
		}
		for _, own := range stats.Streams {
			if own.Stream == s.Stream {
				s.Behind = own.Behind.Seconds()
			}
		}
	}
	return &RecordStatus{stats.Copies, stats.Problem, streams}, nil
}
