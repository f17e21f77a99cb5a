// Package api is the control plane over HTTP: its operations, the OpenAPI document, and the page.
package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/control/copier"
	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/descriptors"
)

const (
	maxBody      = database.MaxTextBytes + 1<<20 // bytes of a request
	AnswerWithin = 15 * time.Second              // for an answer
	pageDefault  = 100
	pageMost     = 1000
)

// API is the control plane over HTTP.
type API struct {
	Database  *database.DB
	Publisher *publish.Publisher
	Leader    *leader.Leader
	Copier    *copier.Copier
	Keys      descriptors.RecordKeys // how the record names identities
	Archive   *archive.Archiver      // nil: there is none
	Tokens    func() []Token         // who may use it; nil: this machine alone
	Log       *slog.Logger

	guard     *http.CrossOriginProtection
	loads     loads
	comparing chan struct{} // holds one comparison of versions
}

// call is one request.
type call struct {
	ctx    context.Context
	r      *http.Request
	who    database.Actor
	caller Caller
	etag   int64 // revision of what is answered; 0: none
	made   bool  // something new was made
}

// Handler returns all routes.
func (a *API) Handler() http.Handler {
	a.guard, a.comparing = http.NewCrossOriginProtection(), make(chan struct{}, 1)
	m := http.NewServeMux()
	byPath := map[string][]route{}
	for _, r := range routes {
		byPath[r.path] = append(byPath[r.path], r)
	}
	for path, here := range byPath {
		m.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { a.dispatch(w, r, here) })
	}
	m.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		admin.WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	m.HandleFunc("GET /readyz", a.ready)
	admin.ServePage(m, pageFiles, pageList)
	m.HandleFunc("GET /metrics", a.metrics())
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		admin.NewProblem(http.StatusNotFound, "there is no %s: /v1/openapi.json describes what there is", r.URL.Path).Write(w)
	})
	return m
}

// dispatch serves one of the operations of a path.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, here []route) {
	caller, wrong := a.caller(r)
	if wrong == nil && a.guard.Check(r) != nil {
		wrong = admin.NewProblem(http.StatusForbidden, "the request comes from a page of another origin")
	}
	if wrong != nil {
		a.turnAway(w, wrong)
		return
	}
	at := slices.IndexFunc(here, func(one route) bool { return one.method == r.Method })
	if at < 0 {
		var methods []string
		for _, one := range here {
			methods = append(methods, one.method)
		}
		w.Header().Set("Allow", strings.Join(methods, ", "))
		admin.NewProblem(http.StatusMethodNotAllowed, "use %s", strings.Join(methods, " or ")).Write(w)
		return
	}
	if wrong = here[at].permits(&caller, r); wrong != nil {
		wrong.Write(w)
		return
	}
	a.serve(w, r, caller, &here[at])
}

// turnAway answers a caller that may not.
func (a *API) turnAway(w http.ResponseWriter, wrong *admin.Problem) {
	if wrong.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="spillway control"`)
	}
	wrong.Write(w)
}

// serve runs an operation and writes its answer.
func (a *API) serve(w http.ResponseWriter, r *http.Request, caller Caller, to *route) {
	ctx, cancel := within(w, r, to)
	defer cancel()
	c := &call{ctx: ctx, r: r, who: database.Actor{Name: caller.Name, Address: r.RemoteAddr}, caller: caller}
	wrong := c.checkPath()
	var document any
	var err error
	if wrong == nil {
		document, err = to.serve(a, c)
	}
	if err != nil {
		wrong = a.problem(err)
	}
	if wrong != nil {
		wrong.Write(w)
		return
	}
	if to.method != http.MethodGet {
		path := r.URL.Path
		if to.private {
			path = to.path
		}
		a.Log.Info("the API made a change", "method", to.method, "path", path, "who", caller.Name, "from", r.RemoteAddr)
	}
	if c.etag > 0 {
		w.Header().Set("ETag", `"`+strconv.FormatInt(c.etag, 10)+`"`)
	}
	status := http.StatusOK
	switch {
	case document == nil:
		w.WriteHeader(http.StatusNoContent)
		return
	case c.made:
		status = http.StatusCreated
	}
	admin.WriteJSON(w, status, document)
}

// within bounds how long a request may take and how much it may send. Lines may take long, unless none comes for a while.
func within(w http.ResponseWriter, r *http.Request, to *route) (context.Context, context.CancelFunc) {
	if !to.lines {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		return context.WithTimeout(r.Context(), AnswerWithin)
	}
	until := http.NewResponseController(w)
	_ = until.SetWriteDeadline(time.Now().Add(loadWithin)) // a server without deadlines needs no later ones
	later := func() { _ = until.SetReadDeadline(time.Now().Add(loadSilence)) }
	r.Body = &slowBody{http.MaxBytesReader(w, r.Body, loadMost), later}
	return context.WithTimeout(r.Context(), loadWithin)
}

// slowBody is a body that may take as long as something comes.
type slowBody struct {
	io.ReadCloser
	again func() // moves the deadline
}

// Read reads what has come.
func (b *slowBody) Read(into []byte) (int, error) {
	b.again()
	return b.ReadCloser.Read(into)
}

// problem is an error as a caller sees it.
func (a *API) problem(err error) *admin.Problem {
	var own *admin.Problem
	var refused *database.Refused
	var lost *database.Conflict
	var sql *pgconn.PgError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &refused):
		return admin.NewProblem(http.StatusUnprocessableEntity, "the rules do not compile, and nothing was changed:\n%v", refused)
	case errors.As(err, &lost):
		return admin.NewProblem(http.StatusPreconditionFailed, "%v", lost)
	case errors.Is(err, database.ErrNotFound):
		return admin.NewProblem(http.StatusNotFound, "there is none")
	case errors.As(err, &sql):
		return sqlProblem(sql)
	}
	a.Log.Warn("the database does not answer", "error", err)
	return admin.NewProblem(http.StatusServiceUnavailable, "the database does not answer; sidecars go on with what they have")
}

// sqlProblem is what the database refuses, as a caller sees it.
func sqlProblem(e *pgconn.PgError) *admin.Problem {
	switch {
	case e.Code == database.CodeLockTimeout, e.Code == database.CodeDeadlock:
		return admin.NewProblem(http.StatusServiceUnavailable,
			"another change holds what this one needs, and nothing was changed: try again")
	case e.Code == database.CodeCanceled:
		return admin.NewProblem(http.StatusServiceUnavailable,
			"the database needs more than %v for it: ask for less, or try again", database.StatementWithin)
	case e.Code == "23503" && strings.Contains(e.Detail, "is still referenced"):
		return admin.NewProblem(http.StatusConflict, "it is in use: %s", e.Detail)
	case e.Code == "23503":
		return admin.NewProblem(http.StatusUnprocessableEntity, "it names what there is not: %s", e.Detail)
	case strings.HasPrefix(e.Code, "23"):
		return admin.NewProblem(http.StatusUnprocessableEntity, "the database refuses it: %s (%s)", e.Message, e.ConstraintName)
	case strings.HasPrefix(e.Code, "22"):
		return admin.NewProblem(http.StatusUnprocessableEntity, "the database cannot keep it: %s", e.Message)
	}
	return admin.NewProblem(http.StatusServiceUnavailable, "the database cannot do it now: %s (%s)", e.Message, e.Code)
}

// checkPath refuses names in the path that cannot be kept.
func (c *call) checkPath() *admin.Problem {
	for _, name := range []string{"domain", "name", "id"} {
		if strings.ContainsRune(c.r.PathValue(name), 0) || len(c.r.PathValue(name)) > 1024 {
			return admin.NewProblem(http.StatusBadRequest, "the %s in the path must have at most 1024 bytes, and no NUL", name)
		}
	}
	return nil
}

func (c *call) domain() string { return c.r.PathValue("domain") }

func (c *call) name() string { return c.r.PathValue("name") }

// version is the number of a version in the path.
func (c *call) version() (int64, error) {
	n, err := strconv.ParseInt(c.r.PathValue("version"), 10, 64)
	if err != nil || n < 1 {
		return 0, admin.NewProblem(http.StatusBadRequest, "the version %q must be a number from 1", c.r.PathValue("version"))
	}
	return n, nil
}

// read decodes the body.
func (c *call) read(into any) error {
	kind, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if kind != "application/json" {
		return admin.NewProblem(http.StatusUnsupportedMediaType, "the content type is %q: send application/json", kind)
	}
	body, err := io.ReadAll(c.r.Body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return admin.NewProblem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	}
	if err != nil {
		return admin.NewProblem(http.StatusBadRequest, "the body cannot be read: %v", err)
	}
	if strings.Contains(string(body), `\u0000`) {
		return admin.NewProblem(http.StatusUnprocessableEntity, "the body has a NUL, which the database cannot keep")
	}
	if wrong := admin.Decode(body, into); wrong != nil {
		return wrong
	}
	return nil
}

// condition reads if-match and if-none-match: the revision that there has to be, 0 for none; nil: any.
func (c *call) condition() (*int64, error) {
	match, none := c.r.Header.Get("If-Match"), c.r.Header.Get("If-None-Match")
	if slices.Contains(c.r.Header["If-Match"], "") || slices.Contains(c.r.Header["If-None-Match"], "") {
		return nil, admin.NewProblem(http.StatusUnprocessableEntity,
			"if-match or if-none-match is empty: leave it out, or fill it in")
	}
	switch {
	case match != "" && none != "":
		return nil, admin.NewProblem(http.StatusUnprocessableEntity,
			"if-match and if-none-match are both sent: send one of them")
	case none == "*":
		return new(int64), nil
	case none != "":
		return nil, admin.NewProblem(http.StatusBadRequest, "if-none-match must be *")
	case match == "*", match == "":
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.Trim(match, `"`), 10, 64)
	if err != nil || n < 1 {
		return nil, admin.NewProblem(http.StatusBadRequest, "if-match %q must be * or an etag that was answered", match)
	}
	return &n, nil
}

// query reads parameters: each at most once, and none but the known ones.
func (c *call) query(known ...string) (map[string]string, error) {
	values := map[string]string{}
	for name, all := range c.r.URL.Query() {
		if !slices.Contains(known, name) || len(all) > 1 || all[0] == "" || strings.ContainsRune(all[0], 0) {
			return nil, admin.NewProblem(http.StatusBadRequest, "the parameter %q is unknown, empty or there twice: use each of %s once", name, strings.Join(known, ", "))
		}
		values[name] = all[0]
	}
	return values, nil
}

// page reads the parameters of a list that is read backwards: those that are named, the number before which it begins (0: the newest)
// and how many.
func (c *call) page(known ...string) (asked map[string]string, before int64, count int, err error) {
	asked, err = c.query(append(known, "before", "limit")...)
	if err != nil {
		return nil, 0, 0, err
	}
	before, err = number(asked, "before", 0, math.MaxInt64)
	if err != nil {
		return nil, 0, 0, err
	}
	most, err := number(asked, "limit", pageDefault, pageMost)
	return asked, before, int(most), err
}

// number reads a parameter that is a number from 1.
func number(asked map[string]string, name string, otherwise, most int64) (int64, error) {
	text, given := asked[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, admin.NewProblem(http.StatusBadRequest, "%s %q must be a number from 1 to %d", name, text, most)
	}
	return n, nil
}

// listed is a list that JSON shows as one, also where it is empty.
func listed[T any](all []T) []T { return append([]T{}, all...) }
