// Package admin is HTTP for people and probes: health, the rules in use, counters, profiles, the API of operators and
// the live page.
package admin

import (
	"embed"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/rules"
)

// Public returns the routes of the HTTP port: the door for JSON and the probes.
func Public(h *Health, json http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle("/json", json)
	m.HandleFunc("/healthcheck", h.check)
	m.HandleFunc("/livez", h.live)
	m.HandleFunc("/readyz", h.ready)
	m.HandleFunc("/", unknown("/json, /healthcheck, /livez and /readyz"))
	return m
}

// Debug is what the debug port shows. Every field is required.
type Debug struct {
	Rules   func() *descriptors.Set // in use, or nil
	Stats   func(io.Writer) error   // counters as text
	Metrics http.Handler
	Level   LogLevel
	API     http.Handler // of /v1
}

// pageFiles are the live page: HTML and JavaScript that ask /v1 and nothing else.
//
//go:embed page/*.html page/*.js
var pageFiles embed.FS

// index is what the debug port serves.
const index = `/                         the live page, in a browser
/rlconfig                 the rules in use with all that they have, one line per limit
/rules.schema.json        the JSON Schema of a rule file, for editors
/stats                    counters as text
/metrics                  counters for Prometheus
/loglevel                 level of the log; PUT changes it
/v1/                      the API of operators: explain, usage, block, top and more; /v1/openapi.json describes it
/debug/pprof/             profiles
/debug/pprof/profile      CPU profile (?seconds=30)
/debug/pprof/trace        execution trace (?seconds=1)
`

// Handler returns the routes of the debug port.
func (d Debug) Handler() http.Handler {
	m := http.NewServeMux()
	httpapi.ServePage(m, pageFiles, index)
	m.HandleFunc("/rlconfig", d.rules)
	m.HandleFunc("/rules.schema.json", schema)
	m.HandleFunc("/stats", d.stats)
	m.Handle("/metrics", d.Metrics)
	m.Handle("/loglevel", d.Level)
	m.Handle("/v1/", d.API)
	m.HandleFunc("/debug/pprof/", pprof.Index)
	m.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("/debug/pprof/profile", pprof.Profile)
	m.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("/debug/pprof/trace", pprof.Trace)
	m.HandleFunc("/", unknown("/, /rlconfig, /rules.schema.json, /stats, /metrics, /loglevel, /v1/ and /debug/pprof/"))
	return m
}

// rules dumps the rules in use.
func (d Debug) rules(w http.ResponseWriter, _ *http.Request) {
	httpapi.Plain(w)
	if set := d.Rules(); set != nil {
		set.Dump(w)
	}
}

// schema writes the JSON Schema of a rule file.
func schema(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/schema+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Write(rules.Schema())
}

// stats writes the counters.
func (d Debug) stats(w http.ResponseWriter, _ *http.Request) {
	httpapi.Plain(w)
	if err := d.Stats(w); err != nil {
		fmt.Fprintf(w, "# %v\n", err)
	}
}

// Metrics returns the routes of a port that serves metrics and nothing else.
func Metrics(path string, metrics http.Handler) http.Handler {
	m := http.NewServeMux()
	m.Handle(path, metrics)
	if path != "/" {
		m.HandleFunc("/", unknown(path))
	}
	return m
}

// unknown answers 404 with what there is instead.
func unknown(there string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Plain(w)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "not found: this port serves %s\n", there)
	}
}
