package simulation

import (
	"runtime"
	"strings"
)

// usage is how many goroutines run, without those of the simulation itself.
func (w *world) usage() (goroutines int) {
	goroutines = runtime.NumGoroutine() - int(w.crews.Load())
	for i := range w.s.sidecars {
		goroutines -= w.connections(i) // each has one at the server
	}
	return goroutines
}

// isCalm: when all is calm, each sidecar has as many connections as its pools keep at most, goroutines and memory are
// as before the first fault, and what Redis holds of the callers ends by itself.
func (w *world) isCalm() {
	most := len(w.servers)*promised.conns + promised.subscribed + len(w.sentinels)
	if w.s.kind == cluster {
		most += len(w.servers) // one to each address of the configuration, which asks for the slots
	}
	for i := range w.s.sidecars {
		if now := w.connections(i); now > most {
			w.violation(nil, "sidecar %d has %d connections when all is calm, and at most %d is right", i, now, most)
		}
	}
	slack := promised.goroutines
	if w.s.kind == cluster {
		slack += 2 * len(w.servers)
	}
	if now := w.usage(); now > w.before+slack*w.s.sidecars {
		w.violation(nil, "%d goroutines run when all is calm, and %d ran", now, w.before)
	}
	for _, s := range w.servers {
		for _, key := range sorted(s.db.values) {
			if s.db.values[key].expires == 0 && !strings.Contains(key, "{sidecars}") {
				w.violation(nil, "%s keeps %s for ever", s.name, key)
			}
		}
	}
	w.isSmall()
}

// isSmall: the memory that is used is that of the calls that the simulation itself keeps, and little more.
func (w *world) isSmall() {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.mu.Lock()
	calls := uint64(len(w.calls))
	w.mu.Unlock()
	most := ownBytes + uint64(w.s.sidecars)*promised.memory + calls*bytesPerCall
	if m.HeapAlloc > most && !w.trace.on {
		w.violation(nil, "%d bytes are used when all is calm, and must be at most %d", m.HeapAlloc, most)
	}
}

// What the simulation itself keeps, and what of each call.
const (
	ownBytes     = 16 << 20
	bytesPerCall = 500
)
