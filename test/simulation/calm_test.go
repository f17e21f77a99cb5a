package simulation

import (
	"runtime"
	"strings"
)

// usage is what a world takes of the machine.
type usage struct {
	conns      []int // of each sidecar
	goroutines int   // without those of the simulation itself
}

func (w *world) usage() (u usage) {
	for i := range w.s.sidecars {
		u.conns = append(u.conns, w.connections(i))
	}
	u.goroutines = runtime.NumGoroutine() - int(w.crews.Load())
	return u
}

// isCalm: when all is calm, connections, goroutines and memory are as before the first fault, and what Redis holds of
// the callers ends by itself.
func (w *world) isCalm() {
	now, slack := w.usage(), 0
	if w.s.kind == cluster {
		slack = promised.conns
	}
	for i, before := range w.before.conns {
		if n := now.conns[i]; n < before-slack || n > before+slack {
			w.violation(nil, "sidecar %d has %d connections when all is calm, and had %d", i, n, before)
		}
	}
	if n := w.before.goroutines + (promised.goroutines+4*slack)*w.s.sidecars; now.goroutines > n {
		w.violation(nil, "%d goroutines run when all is calm, and %d ran", now.goroutines, w.before.goroutines)
	}
	for _, s := range w.servers {
		for _, key := range sorted(s.db.values) {
			if s.db.values[key].expires.IsZero() && !strings.Contains(key, "{sidecars}") {
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
