package api

import (
	"net/http"
	"slices"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

// route is one operation. The OpenAPI document is made of these, and of the types that they take and answer.
type route struct {
	method, path string
	role         Role
	serve        func(*API, *call) (any, error)
	summary      string
	takes        any      // body; nil: none
	answers      any      // nil: nothing
	params       []string // of the query; name:time is a time, name:needed is required, step:total a step that may be total
	locks        bool     // takes if-match
	made         bool     // may answer 201
	private      bool     // its path does not go into the log
	reach        reach    // which domains it is about
	lines        bool     // the body is lines of CSV or JSON, of any length, and takes its time
}

// reach is which domains a route is about, for callers that may not use all of them.
type reach uint8

const (
	oneDomain  reach = iota // the one in its path
	noDomain                // it shows nothing of a domain
	ownDomains              // it leaves out those that the caller may not use
	allDomains              // it is for those alone who may use all
)

// permits returns why a caller may not use a route, or nil.
func (r *route) permits(who *Caller, to *http.Request) *admin.Problem {
	switch {
	case who.Role < r.role:
		return admin.NewProblem(http.StatusForbidden,
			"%s has the role %s, and this needs the role %s", who.Name, who.Role, r.role)
	case r.reach == oneDomain && !who.may(to.PathValue("domain")):
		return who.refuse("another one")
	case r.reach == allDomains && who.limited():
		return who.refuse("all domains")
	}
	return nil
}

var routes []route

// init breaks the circle of routes, which the document is made of, and of the route that answers with the document.
func init() {
	const d = "/v1/domains/{domain}"
	routes = []route{
		{method: "GET", path: "/v1/openapi.json", role: Viewer, reach: noDomain, serve: (*API).openapi, summary: "This document.", answers: map[string]any{}},
		{method: "GET", path: "/v1/status", role: Viewer, reach: noDomain, serve: (*API).status, summary: "Whether this control leads, and what is left to do.", answers: Status{}},
		{method: "GET", path: "/v1/domains", role: Viewer, reach: ownDomains, serve: (*API).domains, summary: "What is in force in each domain.", answers: PublicationList{}},
		{method: "GET", path: d + "/versions", role: Viewer, serve: (*API).versions, summary: "Versions of the rules, the newest first.", answers: VersionList{}, params: []string{"before", "limit"}},
		{method: "POST", path: d + "/versions", role: Admin, serve: (*API).addVersion, summary: "Check a rule file, keep it as a version and, unless told otherwise, publish it.", takes: VersionRequest{}, answers: VersionAdded{}, locks: true, made: true},
		{method: "GET", path: d + "/versions/{version}", role: Viewer, serve: (*API).version, summary: "A version with its text.", answers: database.VersionText{}},
		{method: "GET", path: d + "/published", role: Viewer, serve: (*API).published, summary: "What is in force.", answers: database.Publication{}},
		{method: "PUT", path: d + "/published", role: Admin, serve: (*API).publish, summary: "Publish a version; an old one is a roll back.", takes: PublishRequest{}, answers: database.Publication{}, locks: true},
		{method: "DELETE", path: d + "/published", role: Admin, serve: (*API).unpublish, summary: "Take the rules of the domain out of force. Its versions stay.", answers: database.Publication{}, locks: true},
		{method: "GET", path: d + "/publications", role: Viewer, serve: (*API).publications, summary: "What was in force from when, the newest first.", answers: PublicationHistory{}, params: []string{"before", "limit"}},
		{method: "GET", path: d + "/diff", role: Viewer, serve: (*API).diff, summary: "What a change from one version to another means.", answers: rulediff.Diff{}, params: []string{"from", "to"}},
		{method: "GET", path: d + "/tiers", role: Viewer, serve: (*API).tiers, summary: "Tiers.", answers: TierList{}},
		{method: "GET", path: d + "/tiers/{name}", role: Viewer, serve: (*API).tier, summary: "A tier.", answers: database.Tier{}},
		{method: "PUT", path: d + "/tiers/{name}", role: Admin, serve: (*API).setTier, summary: "Make a tier what it shall be.", takes: database.TierRequest{}, answers: database.Tier{}, locks: true, made: true},
		{method: "DELETE", path: d + "/tiers/{name}", role: Admin, serve: (*API).deleteTier, summary: "Remove a tier that is not in use.", locks: true},
		{method: "GET", path: d + "/users", role: Viewer, serve: (*API).users, summary: "Users, by name.", answers: UserList{}, params: []string{"after", "tier", "prefix", "limit"}},
		{method: "POST", path: d + "/users:load", role: Operator, serve: (*API).loadUsers, summary: "Make many users what the lines of the body say: all of them or none. Others stay.", answers: database.Loaded{}, lines: true},
		{method: "GET", path: d + "/users/{name}", role: Viewer, serve: (*API).user, summary: "A user.", answers: database.User{}},
		{method: "PUT", path: d + "/users/{name}", role: Operator, serve: (*API).setUser, summary: "Make a user what it shall be.", takes: database.UserRequest{}, answers: database.User{}, locks: true, made: true},
		{method: "DELETE", path: d + "/users/{name}", role: Operator, serve: (*API).deleteUser, summary: "Remove a user without API keys.", locks: true},
		{method: "GET", path: d + "/keys", role: Viewer, serve: (*API).keys, summary: "API keys, by id.", answers: KeyList{}, params: []string{"after", "user", "limit"}},
		{method: "POST", path: d + "/keys", role: Operator, serve: (*API).addKey, summary: "Make an API key. The answer has its secret, which is shown this once.", takes: database.KeyRequest{}, answers: database.NewKey{}, made: true},
		{method: "GET", path: d + "/keys/{id}", role: Viewer, serve: (*API).key, summary: "An API key.", answers: database.APIKey{}},
		{method: "DELETE", path: d + "/keys/{id}", role: Operator, serve: (*API).revokeKey, summary: "Revoke an API key. It stays in the lists.", answers: database.APIKey{}, locks: true},
		{method: "GET", path: d + "/blocks", role: Viewer, serve: (*API).blocks, summary: "Blocks in force, by kind and name.", answers: BlockList{}, params: []string{"after_kind", "after", "limit"}},
		{method: "GET", path: d + "/blocks/{kind}/{name...}", role: Viewer, serve: (*API).block, summary: "The block of an identity.", answers: database.Block{}},
		{method: "PUT", path: d + "/blocks/{kind}/{name...}", role: Operator, serve: (*API).setBlock, summary: "Block a user, tenant, ip or api_key. A network wider than /8, of IPv6 /32, needs the parameter wide.", takes: database.BlockRequest{}, answers: database.Block{}, params: []string{"wide"}, locks: true, made: true},
		{method: "DELETE", path: d + "/blocks/{kind}/{name...}", role: Operator, serve: (*API).unblock, summary: "End a block.", locks: true},
		{method: "GET", path: d + "/usage", role: Viewer, serve: (*API).usage, summary: "What an identity, or the domain, used, by minute, hour or day.", answers: database.Usage{}, params: []string{"user", "api_key", "tenant", "identity", "rule", "from:time", "to:time", "step"}},
		{method: "GET", path: d + "/users/{name}/usage", role: Viewer, serve: (*API).userUsage, summary: "What a user used today and this month, against its quotas.", answers: database.UserUsage{}},
		{method: "GET", path: d + "/events", role: Viewer, serve: (*API).events, summary: "Single requests, the newest first.", answers: EventList{}, params: []string{"user", "api_key", "tenant", "identity", "ip", "rule", "outcome", "endpoint", "method", "key", "from:time", "to:time", "cursor", "limit"}},
		{method: "GET", path: d + "/statistics", role: Viewer, serve: (*API).statistics, summary: "Requests, refusals and latencies of decisions, by domain, rule, endpoint or outcome.", answers: StatisticList{}, params: []string{"by", "from:time", "to:time", "step:total"}},
		{method: "GET", path: "/v1/caches", role: Viewer, reach: allDomains, serve: (*API).caches, summary: "Hits and misses of the caches of all sidecars.", answers: CacheList{}, params: []string{"from:time", "to:time", "step"}},
		{method: "GET", path: "/v1/record", role: Viewer, reach: allDomains, serve: (*API).record, summary: "How the copy of usage and events does.", answers: RecordStatus{}},
		{method: "DELETE", path: d + "/identities/{kind}/{name...}", role: Admin, serve: (*API).erase, summary: "Erase what is known of an identity, in all places. The answer is the erasure, which the leading control does.", answers: database.Erasure{}, private: true},
		{method: "GET", path: "/v1/erasures", role: Viewer, reach: ownDomains, serve: (*API).erasures, summary: "Erasures, the newest first.", answers: ErasureList{}, params: []string{"before", "limit"}},
		{method: "GET", path: "/v1/erasures/{erasure}", role: Viewer, reach: ownDomains, serve: (*API).erasure, summary: "An erasure: its state, and what each place had and has.", answers: database.Erasure{}},
		{method: "GET", path: "/v1/audit", role: Viewer, reach: ownDomains, serve: (*API).audit, summary: "Who changed what, the newest first.", answers: AuditList{}, params: []string{"domain", "kind", "name", "before", "limit"}},
	}
	routes = append(routes, questionRoutes()...)
}

// Status is how a control does.
type Status struct {
	Leads    bool      `json:"leads"`
	Pending  int64     `json:"pending"`            // changes that are not in Redis yet
	Mended   int64     `json:"mended"`             // records and documents that this control has written
	WalkedAt time.Time `json:"walked_at,omitzero"` // when this control last compared all of Redis with the database
	Problem  string    `json:"problem"`            // why it cannot publish now; empty: it can
	Caller   string    `json:"caller"`             // who asks
	Role     string    `json:"role"`               // of the caller
	Domains  []string  `json:"domains"`            // that the caller may use; empty: all
}

// status serves GET /v1/status.
func (a *API) status(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	now, leads := a.Publisher.Status(), a.Leader.Status()
	s := Status{
		Leads: leads.Leads, Mended: now.Mended, WalkedAt: now.Walked, Problem: leads.Problem(),
		Caller: c.who.Name, Role: c.caller.Role.String(), Domains: listed(c.caller.Domains),
	}
	if s.Problem != "" && c.caller.limited() { // it may name a domain
		s.Problem = "this control cannot publish now"
	}
	s.Pending, err = a.Database.Pending(c.ctx)
	return s, err
}

// PublicationList is publications.
type PublicationList struct {
	Domains []database.Publication `json:"domains"`
}

// PublicationHistory is publications of one domain.
type PublicationHistory struct {
	Publications []database.Publication `json:"publications"`
}

// VersionList is versions.
type VersionList struct {
	Versions []database.Version `json:"versions"`
}

// VersionRequest is a rule file.
type VersionRequest struct {
	Text    string `json:"text"`
	Note    string `json:"note,omitempty"`
	Publish *bool  `json:"publish,omitempty"` // default true
}

// VersionAdded is a new version, and its publication where it was published.
type VersionAdded struct {
	Version     *database.Version     `json:"version"`
	Publication *database.Publication `json:"publication"`
}

// PublishRequest asks to put a version into force.
type PublishRequest struct {
	Version admin.Whole `json:"version"`
	Note    string      `json:"note,omitempty"`
}

func (a *API) domains(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Published(c.ctx, "")
	all = slices.DeleteFunc(all, func(p database.Publication) bool { return !c.caller.may(p.Domain) })
	return PublicationList{listed(all)}, err
}

func (a *API) versions(c *call) (any, error) {
	_, before, count, err := c.page()
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Versions(c.ctx, c.domain(), before, count)
	return VersionList{listed(all)}, err
}

func (a *API) addVersion(c *call) (any, error) {
	var ask VersionRequest
	err := c.read(&ask)
	if err != nil {
		return nil, err
	}
	if ask.Text == "" {
		return nil, admin.NewProblem(http.StatusUnprocessableEntity, "text is missing: send the text of a rule file")
	}
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	v, p, err := a.Database.AddVersion(c.ctx, c.who, c.domain(), ask.Text, ask.Note, ask.Publish == nil || *ask.Publish, condition)
	if err != nil {
		return nil, err
	}
	c.made = true
	if p != nil {
		c.etag = p.Publication
	}
	return VersionAdded{v, p}, nil
}

func (a *API) version(c *call) (any, error) {
	n, err := c.version()
	if err != nil {
		return nil, err
	}
	return a.Database.VersionOf(c.ctx, c.domain(), n)
}

func (a *API) published(c *call) (any, error) {
	all, err := a.Database.Published(c.ctx, c.domain())
	if err == nil && len(all) == 0 {
		err = database.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	c.etag = all[0].Publication
	return all[0], nil
}

func (a *API) publish(c *call) (any, error) {
	var ask PublishRequest
	err := c.read(&ask)
	if err != nil {
		return nil, err
	}
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	p, err := a.Database.Publish(c.ctx, c.who, c.domain(), int64(ask.Version), ask.Note, condition)
	if err != nil {
		return nil, err
	}
	c.etag = p.Publication
	return p, nil
}

// unpublish serves DELETE …/published.
func (a *API) unpublish(c *call) (any, error) {
	condition, err := c.condition()
	if err != nil {
		return nil, err
	}
	p, err := a.Database.Unpublish(c.ctx, c.who, c.domain(), condition)
	if err != nil {
		return nil, err
	}
	c.etag = p.Publication
	return p, nil
}

func (a *API) publications(c *call) (any, error) {
	_, before, count, err := c.page()
	if err != nil {
		return nil, err
	}
	all, err := a.Database.Publications(c.ctx, c.domain(), before, count)
	return PublicationHistory{listed(all)}, err
}
