package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Health is what probes ask for. The zero value is healthy, with nothing degraded.
type Health struct {
	// Degraded names what does not work as it should, each as `part: what`; nil means nothing ever. It must be quick
	// and hold no names of rules or clients: every client that reaches the port reads it.
	Degraded func() []string
	// Unready returns why requests should not be sent here yet, or nothing; nil means that they always can.
	Unready  func() string
	draining atomic.Bool
}

// Drain makes the sidecar unready for good: it is about to stop.
func (h *Health) Drain() { h.draining.Store(true) }

// Draining reports whether Drain was called.
func (h *Health) Draining() bool { return h.draining.Load() }

// unready is why requests should not be sent here, or nothing.
func (h *Health) unready() string {
	switch {
	case h.Draining():
		return "draining"
	case h.Unready != nil:
		return h.Unready()
	}
	return ""
}

// check is the reference server's /healthcheck: 200 OK, or 500 while it is not ready. A lost Redis does not make it
// fail, because that would take the application's pod out of service.
func (h *Health) check(w http.ResponseWriter, _ *http.Request) {
	if h.unready() != "" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	io.WriteString(w, "OK")
}

// live is good for as long as the process can answer.
func (h *Health) live(w http.ResponseWriter, _ *http.Request) {
	io.WriteString(w, "ok\n")
}

// ready is good until the sidecar drains, unless something that it needs is missing; the body names what is degraded.
func (h *Health) ready(w http.ResponseWriter, _ *http.Request) {
	if why := h.unready(); why != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, why)
		return
	}
	var degraded []string
	if h.Degraded != nil {
		degraded = h.Degraded()
	}
	if len(degraded) == 0 {
		io.WriteString(w, "ok\n")
		return
	}
	fmt.Fprintf(w, "ok (degraded: %s)\n", strings.Join(degraded, "; "))
}
