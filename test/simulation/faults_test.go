package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	kind    string
	begins  time.Duration // since the start
	lasts   time.Duration
	sidecar int // whose link; -1: those of all
	size    float64
}

// kinds of faults. To add one, add its name here, and its begin and end to world.apply.
var faultKinds = []string{
	"stall", "partition", "cut requests", "cut replies", "slow requests", "slow replies", "jitter", "lose replies",
	"reset", "refuse", "restart", "restart empty",
}

// newFaults plans the faults of a seed: some seeds have few and long ones, some have many that overlap.
func newFaults(s *scenario, r *rand.Rand) []fault {
	var all []fault
	mean := pick(r, 400*time.Millisecond, 800*time.Millisecond, 1500*time.Millisecond, 4*time.Second)
	for at := warm; ; {
		at += time.Duration(r.ExpFloat64() * float64(mean))
		f := fault{kind: pick(r, faultKinds...), begins: at, sidecar: r.IntN(s.sidecars+1) - 1, size: r.Float64()}
		f.lasts = time.Duration((0.005 + r.ExpFloat64()*0.4) * float64(time.Second))
		f.lasts = min(f.lasts, 2500*time.Millisecond)
		if f.kind == "restart" || f.kind == "restart empty" || f.kind == "stall" {
			f.sidecar = -1
		}
		if f.begins+f.lasts > s.lasts {
			return all
		}
		all = append(all, f)
	}
}

func (f *fault) String() string {
	where := "all sidecars"
	if f.sidecar >= 0 {
		where = fmt.Sprintf("sidecar %d", f.sidecar)
	}
	return fmt.Sprintf("%s, %s, size %.2f, for %v", f.kind, where, f.size, f.lasts.Round(time.Microsecond))
}

// links are those that a fault is about.
func (w *world) links(f *fault) (all []*link) {
	for i := range w.s.sidecars {
		if f.sidecar < 0 || f.sidecar == i {
			all = append(all, w.network.link(place(i), redisAddress))
		}
	}
	return all
}

// hurt runs one fault from its begin to its end.
func (w *world) hurt(f *fault) {
	elapse(f.begins - w.since())
	w.trace.add("fault begins: %v", f)
	w.apply(f, 1)
	elapse(f.lasts)
	w.apply(f, -1)
	w.trace.add("fault ends: %v", f)
}

// apply begins (by 1) or ends (by -1) a fault.
func (w *world) apply(f *fault, by int) {
	switch f.kind {
	case "stall":
		if by > 0 {
			w.server.stall(time.Now().Add(f.lasts))
		}
		return
	case "restart", "restart empty":
		w.restart(by, f.kind == "restart empty")
		return
	}
	slow := time.Duration(by) * time.Duration((1+f.size*60)*float64(time.Millisecond))
	for _, l := range w.links(f) {
		switch f.kind {
		case "partition":
			l.up.change(func(w *way) { w.cuts += by })
			l.down.change(func(w *way) { w.cuts += by })
		case "cut requests":
			l.up.change(func(w *way) { w.cuts += by })
		case "cut replies":
			l.down.change(func(w *way) { w.cuts += by })
		case "slow requests":
			l.up.change(func(w *way) { w.latency += slow })
		case "slow replies":
			l.down.change(func(w *way) { w.latency += slow })
		case "jitter":
			l.down.change(func(w *way) { w.jitter += slow })
			l.up.change(func(w *way) { w.jitter += slow })
		case "lose replies":
			l.down.change(func(w *way) { w.lossy += float64(by) * (0.01 + f.size*0.2) })
		case "reset":
			l.resetAll()
		case "refuse":
			l.refuse(by)
			if by > 0 {
				l.resetAll()
			}
		}
	}
}

// restart ends the server, and starts it again when no fault keeps it down.
func (w *world) restart(by int, empty bool) {
	w.mu.Lock()
	w.down += by
	down := w.down
	w.mu.Unlock()
	switch {
	case by > 0 && down == 1:
		w.server.stop()
	case by < 0 && down == 0:
		w.server.start()
	}
	if by < 0 && empty {
		w.server.empty()
		w.mu.Lock()
		w.lives = append(w.lives, w.since())
		w.mu.Unlock()
		w.trace.add("redis has lost everything")
	}
}
