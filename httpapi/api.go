// Package httpapi is the frame of the HTTP APIs of sidecar and control: who may ask, what may be sent, how answers and
// problems look, and an OpenAPI document that is made from the same types that requests are read into.
package httpapi

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config is what all operations of an API have in common.
type Config struct {
	Title, About string
	Access       Access
	Within       time.Duration        // for an answer
	MaxBody      int64                // bytes of a request
	NUL          bool                 // texts of requests may have NUL, which a database cannot keep
	Problem      func(error) *Problem // of an error that is not a *Problem
	Sources      []fs.FS              // Go files whose comments describe the types
	Log          *slog.Logger         // gets a line for each change; nil: operations log themselves
	// runs each change, and may add to the header of its answer; nil: it runs as it is
	Around func(ctx context.Context, answer http.Header, change func(context.Context) error) error
}

// API is operations, each a method of a path. Add adds to them before Handler is called.
type API struct {
	Config
	operations []*operation
	schemas    schemas
	document   func() *document
	guard      *http.CrossOriginProtection
	ready      sync.Once // the schemas of answers are made
}

// Op is one operation.
type Op struct {
	Method, Path   string
	Summary, About string
	Role           Role          // that it needs
	Made           bool          // it may make something new: POST always does, PUT where the revision is 1 then
	Private        bool          // its path does not go into the log
	AnyDomain      bool          // of a path without {domain}: it shows nothing of domains that its caller may not use
	Within         time.Duration // for an answer, if it may take longer than others
	MaxBody        int64         // bytes of a request, if it may have more than others
}

// operation is an Op with what serves it.
type operation struct {
	Op
	in     *input
	out    reflect.Type
	stream bool
	serve  func(ctx context.Context, in any, w http.ResponseWriter) (any, error)
}

// New makes an API that has GET /v1/openapi.json.
func New(c Config) *API {
	a := &API{Config: c, guard: http.NewCrossOriginProtection()}
	a.schemas = schemas{byName: map[string]*Schema{}, types: map[string]reflect.Type{}, nul: c.NUL,
		comments: commentsOf(append(c.Sources, sources))}
	a.document = sync.OnceValue(a.makeDocument)
	Add(a, Op{
		Method: "GET", Path: "/v1/openapi.json", Summary: "The OpenAPI document of this API.", Role: View,
		AnyDomain: true,
	}, func(context.Context, *None) (*document, error) { return a.document(), nil })
	return a
}

// None is the input of an operation that takes nothing, and the answer of one that answers 204.
type None struct{}

// Add adds an operation. In is a struct whose fields are the inputs, by their tags:
//
//	path:"name" query:"name" header:"Name"  where the value of the field is in the request
//	body:""                                 the field is the body, a struct with json tags
//	in:"1..1000"                            the range of a number, or of the length of a text or a list
//	or:"20"                                 the value of a parameter that is not sent
//	one:"hour day"                          the words that a text may be
//	like:"^[^/]"                            the pattern of a text
//
// A parameter of the query is optional, unless its tag ends with ",required". A field of a body is required, unless its
// json tag has omitempty or omitzero. No value may be empty, but where in begins with 0 and in a *string. A blank
// field of a body with oneof:"user tenant ip+port" means that one of these must be there, with what + adds to it.
func Add[In, Out any](a *API, op Op, serve func(ctx context.Context, in *In) (*Out, error)) {
	a.operations = append(a.operations, &operation{Op: op, in: a.inputOf(reflect.TypeFor[In](), &op),
		out: reflect.TypeFor[Out](),
		serve: func(ctx context.Context, in any, _ http.ResponseWriter) (any, error) {
			out, err := serve(ctx, in.(*In))
			if err != nil || reflect.TypeFor[Out]() == reflect.TypeFor[None]() {
				return nil, err
			}
			return out, nil
		}})
}

// Handler returns what is served under /v1.
func (a *API) Handler() http.Handler {
	a.ready.Do(a.addAnswers)
	m := http.NewServeMux()
	byPath := map[string][]*operation{}
	for _, o := range a.operations {
		byPath[o.Path] = append(byPath[o.Path], o)
	}
	for path, here := range byPath {
		m.Handle(path, a.Guard(NoRole,
			func(w http.ResponseWriter, r *http.Request, c Caller) { a.dispatch(w, r, c, here) }))
	}
	m.Handle("/v1/", a.Guard(NoRole, func(w http.ResponseWriter, r *http.Request, _ Caller) {
		NewProblem(http.StatusNotFound, "there is no %s: /v1/openapi.json describes what there is", r.URL.Path).Write(w)
	}))
	return m
}

// Guard lets callers in that Access knows, with a role or a higher one, and no page of another origin in a browser.
func (a *API) Guard(role Role, next func(http.ResponseWriter, *http.Request, Caller)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, wrong := a.Access.caller(r)
		switch {
		case wrong != nil:
		case a.guard.Check(r) != nil || foreign(r):
			wrong = NewProblem(http.StatusForbidden, "the request comes from a page of another origin")
		default:
			wrong = a.Access.lacks(caller, role)
		}
		if wrong == nil {
			next(w, r, caller)
			return
		}
		if wrong.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="spillway"`)
		}
		wrong.Write(w)
	})
}

// dispatch serves one of the operations of a path. GET is HEAD, too.
func (a *API) dispatch(w http.ResponseWriter, r *http.Request, c Caller, here []*operation) {
	var methods []string
	for _, o := range here {
		methods = append(methods, o.Method)
		if o.Method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	at := slices.IndexFunc(here, func(o *operation) bool {
		return o.Method == r.Method || o.Method == http.MethodGet && r.Method == http.MethodHead
	})
	if at < 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
		NewProblem(http.StatusMethodNotAllowed, "use %s", strings.Join(methods, " or ")).Write(w)
		return
	}
	wrong := a.Access.lacks(c, here[at].Role)
	if wrong == nil {
		wrong = here[at].reaches(c, r)
	}
	if wrong != nil {
		wrong.Write(w)
		return
	}
	a.run(w, r, c, here[at])
}

// reaches returns why a caller may not use the operation for the domain of a request, or nil.
func (o *operation) reaches(c Caller, r *http.Request) *Problem {
	if o.AnyDomain || c.May(r.PathValue("domain")) {
		return nil
	}
	if !strings.Contains(o.Path, "{domain}") {
		return c.Refuse("all domains")
	}
	return c.Refuse("another one")
}

// run reads the inputs of an operation, serves it and writes the answer.
func (a *API) run(w http.ResponseWriter, r *http.Request, c Caller, o *operation) {
	ctx, cancel := a.bound(w, r, o)
	defer cancel()
	var out any
	in, wrong := o.in.read(r, &a.schemas)
	if wrong == nil {
		serve := func(ctx context.Context) (err error) {
			out, err = o.serve(ctx, in, w)
			return err
		}
		wrong = a.problem(a.around(context.WithValue(ctx, callerKey{}, c), o, w.Header(), serve))
	}
	switch {
	case wrong != nil:
		wrong.Write(w)
		return
	case o.stream:
		return
	}
	a.logChange(r, c, o)
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	status := http.StatusOK
	revision := revisionOf(reflect.ValueOf(out))
	if revision > 0 {
		w.Header().Set("ETag", `"`+strconv.FormatInt(revision, 10)+`"`)
	}
	if o.Made && (revision == 1 || o.Method == http.MethodPost) {
		status = http.StatusCreated
	}
	WriteJSON(w, status, out)
}

// around runs an operation.
func (a *API) around(ctx context.Context, o *operation, answer http.Header, serve func(context.Context) error) error {
	if a.Around == nil || o.Method == http.MethodGet {
		return serve(ctx)
	}
	return a.Around(ctx, answer, serve)
}

// logChange logs that a caller has changed something.
func (a *API) logChange(r *http.Request, c Caller, o *operation) {
	if a.Log == nil || o.Method == http.MethodGet {
		return
	}
	path := r.URL.Path
	if o.Private {
		path = o.Path
	}
	a.Log.Info("changed by the API", "method", o.Method, "path", path, "who", c.Name, "from", c.From)
}

// problem is an error as a caller sees it; nil for none.
func (a *API) problem(err error) *Problem {
	if err == nil {
		return nil
	}
	own, is := asProblem(err)
	switch {
	case is:
		return own
	case a.Problem != nil:
		return a.Problem(err)
	}
	return NewProblem(http.StatusInternalServerError, "%v", err)
}
