package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/audit"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/records"
)

const (
	maxBody   = 1 << 20         // bytes of a request
	apiWithin = 5 * time.Second // for an answer, but those that are streams
)

// API is what the debug port serves under /v1.
type API struct {
	Access  Access
	Engine  *engine.Engine
	Records *records.Book
	Doors   Doors
	InUse   func() InUse
	Config  func() ConfigView
	Counted func() StatsView // since the start; who asks, the time and the rules are filled in here
	// Forget makes all sidecars forget what they know of the counters that an operator's change touches, and what they count themselves of the
	// keys that it made full.
	Forget     func(ctx context.Context, touched, reset []string) error
	Top        *audit.Top                                       // nil: there is none
	TopOfFleet TopOfFleet                                       // required with Top
	Fleet      func(ctx context.Context) ([]SidecarView, error) // every sidecar that lives
	Events     *audit.Feed
	EventsRole Role            // that events need; NoRole: there are none
	Stopping   <-chan struct{} // closed when streams have to end

	Log *slog.Logger     // gets a line for each change
	Now func() time.Time // default time.Now

	guard *http.CrossOriginProtection
}

// route is one operation of the API.
type route struct {
	method, path string
	role         Role
	serve        func(*API, *call) (any, *Problem)
}

// routes are all operations but those that answer with a stream.
var routes = []route{
	{"GET", "/v1/openapi.json", View, (*API).openapi},
	{"POST", "/v1/explain", View, (*API).explain},
	{"GET", "/v1/rules", View, (*API).rules},
	{"GET", "/v1/config", View, (*API).config},
	{"GET", "/v1/usage", View, (*API).usage},
	{"GET", "/v1/top", View, (*API).top},
	{"GET", "/v1/fleet", View, (*API).fleet},
	{"GET", "/v1/stats", View, (*API).stats},
	{"POST", "/v1/reset", Operate, (*API).reset},
	{"POST", "/v1/pardon", Operate, (*API).pardon},
	{"POST", "/v1/tier", Operate, (*API).tier},
	{"POST", "/v1/block", Operate, (*API).block},
	{"POST", "/v1/unblock", Operate, (*API).unblock},
}

// call is one request of the API.
type call struct {
	ctx     context.Context
	caller  Caller
	request *http.Request
}

// Handler returns what is served under /v1.
func (a *API) Handler() http.Handler {
	if a.Now == nil {
		a.Now = time.Now
	}
	a.guard = http.NewCrossOriginProtection()
	m := http.NewServeMux()
	byPath := map[string][]route{}
	for _, r := range routes {
		byPath[r.path] = append(byPath[r.path], r)
	}
	for path, here := range byPath {
		m.HandleFunc(path, a.guarded(func(w http.ResponseWriter, r *http.Request, c Caller) { a.dispatch(w, r, c, here) }))
	}
	m.HandleFunc(eventsPath, a.guarded(a.serveEvents))
	m.HandleFunc("/v1/", a.guarded(func(w http.ResponseWriter, r *http.Request, _ Caller) {
		problem(http.StatusNotFound, "there is no %s: /v1/openapi.json describes what there is", r.URL.Path).write(w)
	}))
	return m
}

// guarded lets known callers in, and no page of another origin in a browser.
func (a *API) guarded(next func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, wrong := a.Access.caller(r)
		if wrong == nil && (a.guard.Check(r) != nil || foreign(r)) {
			wrong = problem(http.StatusForbidden, "the request comes from a page of another origin")
		}
		if wrong != nil {
			if wrong.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="spillway"`)
			}
			wrong.write(w)
			return
		}
		next(w, r, caller)
	}
}

// foreign reports whether a browser sends a request for a page of another origin. Reading, too, is refused: it would take the place of
// a reader of events, though the page would not see the answer.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return true
}

// dispatch serves one of the operations of a path.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, caller Caller, here []route) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	at := slices.IndexFunc(here, func(one route) bool { return one.method == method })
	if at < 0 {
		notAllowed(here).write(w, here)
		return
	}
	if caller.Role < here[at].role {
		problem(http.StatusForbidden, "%s has the role %s, and this needs the role %s", caller.Name, caller.Role, here[at].role).write(w)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	ctx, cancel := context.WithTimeout(r.Context(), apiWithin)
	defer cancel()
	document, wrong := here[at].serve(a, &call{ctx, caller, r})
	if wrong != nil {
		wrong.write(w)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", document)
}

// notAllowedProblem is the answer to a method that a path does not have.
type notAllowedProblem struct{ *Problem }

func notAllowed(here []route) notAllowedProblem {
	return notAllowedProblem{problem(http.StatusMethodNotAllowed, "use %s", strings.Join(methods(here), " or "))}
}

func methods(here []route) []string {
	var all []string
	for _, r := range here {
		all = append(all, r.method)
		if r.method == http.MethodGet {
			all = append(all, http.MethodHead)
		}
	}
	return all
}

func (p notAllowedProblem) write(w http.ResponseWriter, here []route) {
	w.Header().Set("Allow", strings.Join(methods(here), ", "))
	p.Problem.write(w)
}

// read decodes the body into a document. It accepts JSON without unknown fields, and nothing behind it.
func (c *call) read(into any) *Problem {
	kind, _, _ := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if kind != "application/json" {
		return problem(http.StatusUnsupportedMediaType, "the content type is %q: send application/json", kind)
	}
	body, err := io.ReadAll(c.request.Body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return problem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", maxBody)
	}
	if err != nil {
		return bad("the body cannot be read: %v", err)
	}
	return decode(body, into)
}

// decode reads one JSON document.
func decode(body []byte, into any) *Problem {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return bad("the body is empty: send a JSON object")
	}
	if err != nil {
		return bad("the body is not what is expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return bad("something follows the JSON object: send one object alone")
	}
	err = strict(body, reflect.TypeOf(into))
	if err != nil {
		return bad("the body is not what is expected: %v", err)
	}
	return nil
}

// query reads the parameters of a GET: each at most once, and none but the known ones.
func (c *call) query(known ...string) (map[string]string, *Problem) {
	values := map[string]string{}
	for name, all := range c.request.URL.Query() {
		if !slices.Contains(known, name) {
			return nil, bad("the parameter %q is unknown: use %s", name, strings.Join(known, ", "))
		}
		if len(all) > 1 {
			return nil, bad("the parameter %q is there %d times: give it once", name, len(all))
		}
		if all[0] == "" {
			return nil, bad("the parameter %q is empty: leave it out, or fill it in", name)
		}
		values[name] = all[0]
	}
	return values, nil
}

// logChange logs what a caller has changed.
func (a *API) logChange(c *call, what string, args ...any) {
	a.Log.Info("admin: "+what, append([]any{"who", c.caller.Name, "from", c.request.RemoteAddr}, args...)...)
}
