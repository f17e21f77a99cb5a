// Package admin is HTTP for people and probes: health, the rules in use, counters, profiles, the API of operators and the live page.
package admin

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
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
	servePage(m)
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
	plain(w)
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
	plain(w)
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

// How many bytes the header of a request may have.
const (
	Headers      = 64 << 10
	ProbeHeaders = 8 << 10 // on a port for probes and metrics
)

// headerSlack is how many bytes more than MaxHeaderBytes net/http takes.
const headerSlack = 4 << 10

// Server returns a server with timeouts for handler. An answer may take as long as answer says, 0 being for ever: a
// profile takes as long as it was asked to. It speaks HTTP/1 only: what a client of HTTP/2 holds could not be counted.
func Server(handler http.Handler, headers int, answer time.Duration) *http.Server {
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Server{
		Protocols:         only,
		WriteTimeout:      answer,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    headers - headerSlack,
	}
}

// Complaints returns where a server writes what is wrong with connections: to a log, as one message that it may thin.
func Complaints(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

// Write takes one line.
func (c complaints) Write(line []byte) (int, error) {
	c.log.Warn("a connection over HTTP went wrong", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

// unknown answers 404 with what there is instead.
func unknown(there string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		plain(w)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "not found: this port serves %s\n", there)
	}
}

func plain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}
