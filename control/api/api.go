// Package api is the control plane over HTTP: its operations, and the page.
package api

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/control/copier"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/whatif/rulediff"
)

// AnswerWithin bounds how long an answer may take.
const AnswerWithin = 15 * time.Second

// sources are the files whose comments describe requests and answers.
//
//go:embed api.go load.go profiles.go questions.go reports.go rules.go status.go
var sources embed.FS

// pageFiles are the page of the control: HTML and JavaScript that ask /v1 and nothing else.
//
//go:embed page/*.html page/*.js
var pageFiles embed.FS

// pageList is what programs get at /.
const pageList = `/                 the page of the control, in a browser
/v1/openapi.json  describes the API
/livez            whether the program runs
/readyz           whether changes can be made
/metrics          for Prometheus
`

// TokenFile is how the file of tokens is written. An admin also changes tiers, publishes rules, and erases identities.
var TokenFile = httpapi.TokenFile{
	Variable: "CONTROL_TOKEN_FILE", Roles: httpapi.Roles{"viewer", "operator", "admin"}, Digests: true,
	Make: ": `spillway tokens create admin NAME` makes one",
}

// API is the control plane over HTTP.
type API struct {
	Database  *database.DB
	Publisher *publish.Publisher
	Leader    *leader.Leader
	Copier    *copier.Copier
	Keys      keys.Names             // how the record names identities
	Archive   *archive.Archiver      // nil: nothing is archived
	Tokens    func() []httpapi.Token // who may use it; nil: this machine alone
	Log       *slog.Logger

	loads     loads
	comparing chan struct{} // holds one comparison of versions
}

// Handler returns all routes.
func (a *API) Handler() http.Handler {
	api, m := a.Operations(), http.NewServeMux()
	m.Handle("/v1/", api.Handler())
	m.HandleFunc("GET /livez", live)
	m.HandleFunc("GET /readyz", a.ready)
	m.Handle("GET /metrics", api.Guard(httpapi.View, a.metrics()))
	httpapi.ServePage(m, pageFiles, pageList)
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		httpapi.NewProblem(http.StatusNotFound, "there is no %s: /v1/openapi.json describes what there is",
			r.URL.Path).Write(w)
	})
	return m
}

// Operations are all operations of the API.
func (a *API) Operations() *httpapi.API {
	a.comparing = make(chan struct{}, 1)
	api := httpapi.New(httpapi.Config{
		Title: "Spillway control",
		About: "Rules, tiers, users, API keys and blocks. docs/guides/control.md explains it. The answer of a change " +
			"that sidecars take from Redis has the header " + inForce + ": true, or false where Redis does not have it " +
			"yet; then " + inForceOnce + " is what has to come first.",
		Access: httpapi.Access{
			Roles: TokenFile.Roles, Tokens: a.Tokens, Local: httpapi.Administer, TokenFile: TokenFile.Variable,
		},
		Around: a.around,
		Within: AnswerWithin, MaxBody: database.MaxTextBytes + 1<<20, Problem: a.problem, Log: a.Log,
		Sources: []fs.FS{sources, database.Sources, publish.Sources, profiles.Sources, rulediff.Sources},
	})
	a.addRules(api)
	a.addProfiles(api)
	a.addChanges(api)
	a.addReports(api)
	a.addQuestions(api)
	a.addRest(api)
	return api
}

// inDomain is the path of a domain. Operations whose paths have one embed it.
type inDomain struct {
	Domain string `path:"domain" in:"1..1024"` // the domain
}

const domainPath = "/v1/domains/{domain}"

// get is an operation that reads.
func get(path, summary string) httpapi.Op {
	return httpapi.Op{Method: "GET", Path: path, Role: httpapi.View, Summary: summary}
}

// change is an operation that changes something. PUT and POST may make it.
func change(method, path string, role httpapi.Role, summary string) httpapi.Op {
	return httpapi.Op{Method: method, Path: domainPath + path, Role: role, Summary: summary, Made: method != "DELETE"}
}

// actor is who makes a change.
func actor(ctx context.Context) database.Actor {
	c := httpapi.CallerOf(ctx)
	return database.Actor{Name: c.Name, Address: c.From}
}

// problem is an error as a caller sees it.
func (a *API) problem(err error) *httpapi.Problem {
	var refused *database.Refused
	var lost *database.Conflict
	var sql *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		return httpapi.Cannot("the rules do not compile, and nothing was changed:\n%v", refused)
	case errors.As(err, &lost):
		return httpapi.NewProblem(http.StatusPreconditionFailed, "%v", lost)
	case errors.Is(err, database.ErrNotFound):
		return httpapi.NewProblem(http.StatusNotFound, "there is none")
	case errors.As(err, &sql):
		return a.sqlProblem(sql)
	}
	a.Log.Warn("the database does not answer", "error", err)
	return httpapi.NewProblem(http.StatusServiceUnavailable,
		"the database does not answer; sidecars go on with what they have")
}
