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
	sidecar int // whose links; -1: those of all
	server  int // to which place; -1: to all
	size    float64
}

// kinds of faults. To add one, add its name here, and its begin and end to world.apply.
var faultKinds = []string{
	"stall", "partition", "cut requests", "cut replies", "slow requests", "slow replies", "jitter", "lose replies",
	"lose requests",
	"reset", "refuse", "restart", "restart empty", "kill", "set clock",
}

// topologyFaults are those of one topology.
var topologyFaults = map[string][]string{
	sentinel: {"master dies", "failover", "replication lags"},
	cluster:  {"move slots", "move slots", "move slots"},
}

// newFaults plans the faults of a seed: some seeds have few and long ones, some have many that overlap.
func newFaults(s *scenario, r *rand.Rand) []fault {
	kinds := append(append([]string{}, faultKinds...), topologyFaults[s.kind]...)
	places := map[string]int{single: 1, sentinel: 2 + sentinels, cluster: 3}[s.kind]
	var all []fault
	mean := pick(r, 400*time.Millisecond, 800*time.Millisecond, 1500*time.Millisecond, 4*time.Second)
	for at := warm; ; {
		at += time.Duration(r.ExpFloat64() * float64(mean))
		f := fault{kind: pick(r, kinds...), begins: at, sidecar: r.IntN(s.sidecars+1) - 1, size: r.Float64()}
		f.server = r.IntN(places+1) - 1
		f.lasts = time.Duration((0.005 + r.ExpFloat64()*0.4) * float64(time.Second))
		f.lasts = min(f.lasts, 2500*time.Millisecond)
		switch f.kind {
		case "restart", "restart empty", "stall":
			f.sidecar = -1
			f.server = r.IntN(map[string]int{single: 1, sentinel: 2, cluster: 3}[s.kind])
		case "master dies", "failover":
			f.lasts = max(f.lasts, 800*time.Millisecond)
		case "kill":
			f.sidecar = r.IntN(s.sidecars)
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
	to := "all servers"
	if f.server >= 0 {
		to = fmt.Sprintf("server %d", f.server)
	}
	return fmt.Sprintf("%s, %s, %s, size %.2f, for %v", f.kind, where, to, f.size, f.lasts.Round(time.Microsecond))
}

// linksOf are those that a fault is about.
func (w *world) linksOf(f *fault) (all []*link) {
	for i := range w.s.sidecars {
		for j, to := range w.places {
			if (f.sidecar < 0 || f.sidecar == i) && (f.server < 0 || f.server == j) {
				all = append(all, w.network.link(place(i), to))
			}
		}
	}
	return all
}

// hurt runs one fault from its begin to its end.
func (w *world) hurt(f *fault) {
	elapse(f.begins - w.since())
	w.trace.add("fault begins: %v", f)
	switch f.kind {
	case "master dies", "failover":
		w.failOver(f)
	case "move slots":
		w.moveSlots(f)
	default:
		w.apply(f, 1)
		elapse(f.lasts)
		w.apply(f, -1)
	}
	w.mu.Lock()
	f.lasts = max(f.lasts, w.since()-f.begins)
	w.mu.Unlock()
	w.trace.add("fault ends: %v", f)
}

// apply begins (by 1) or ends (by -1) a fault.
func (w *world) apply(f *fault, by int) {
	switch f.kind {
	case "stall":
		if by > 0 {
			w.servers[f.server].stall(time.Now().Add(f.lasts))
		}
	case "restart", "restart empty":
		w.restart(w.servers[f.server], by, f.kind == "restart empty")
	case "kill":
		w.kill(f.sidecar, by)
	case "set clock":
		w.setClock(time.Duration(float64(by) * (f.size - 0.5) * float64(10*time.Second)))
	case "replication lags":
		w.quorum.lags(time.Duration(float64(by) * f.size * float64(500*time.Millisecond)))
	default:
		for _, l := range w.linksOf(f) {
			l.apply(f, by)
		}
	}
}

// apply begins or ends a fault of a link.
func (l *link) apply(f *fault, by int) {
	slow := time.Duration(by) * time.Duration((1+f.size*60)*float64(time.Millisecond))
	cut := func(w *way) { w.cuts += by }
	late := func(w *way) { w.latency += slow }
	switch f.kind {
	case "partition":
		l.up.change(cut)
		l.down.change(cut)
	case "cut requests":
		l.up.change(cut)
	case "cut replies":
		l.down.change(cut)
	case "slow requests":
		l.up.change(late)
	case "slow replies":
		l.down.change(late)
	case "jitter":
		l.down.change(func(w *way) { w.jitter += slow })
		l.up.change(func(w *way) { w.jitter += slow })
	case "lose replies":
		l.down.change(func(w *way) { w.lossy += float64(by) * (0.01 + f.size*0.2) })
	case "lose requests":
		l.up.change(func(w *way) { w.lossy += float64(by) * (0.01 + f.size*0.2) })
	case "reset":
		l.resetAll()
	case "refuse":
		l.refuse(by)
		if by > 0 {
			l.resetAll()
		}
	}
}

// lags lets the replica get changes later.
func (q *quorum) lags(by time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lag += by
}
