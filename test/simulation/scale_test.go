package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var scale = flag.String("scale", "", "simulate many sidecars on one limit: leases, or none")

// What TestScale simulates.
const (
	scaleSidecars = 100
	scaleLimit    = 100_000 // a second
	scaleBurst    = 20_000
	scaleRate     = 120_000 // calls a second, of all sidecars
	scaleLasts    = 4 * time.Second
)

// TestScale shows how often many sidecars ask Redis about one limit. It does nothing without -scale.
func TestScale(t *testing.T) {
	if *scale == "" {
		return
	}
	folder := t.TempDir()
	d := &domain{
		name: "d0", policy: "closed", algorithm: "token_bucket", count: scaleLimit, burst: scaleBurst,
		window: time.Second, lease: *scale == "leases", users: 1,
	}
	s := &scenario{
		seed: 1, kind: single, sidecars: scaleSidecars, lasts: scaleLasts, latency: usualLatency, domains: []*domain{d},
	}
	plan := loadPlan{domain: d, kind: "open", rate: scaleRate / scaleSidecars}
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = begin(t, s, folder, false)
		w.runScale(&plan)
		w.end()
	})
	w.showScale(t)
}

// runScale sends calls to each sidecar.
func (w *world) runScale(p *loadPlan) {
	elapse(time.Second)
	ctx, stop := context.WithTimeout(context.Background(), w.s.lasts-time.Second)
	defer stop()
	callers := w.newCrew()
	for i := range w.s.sidecars {
		r := w.s.stream(ofLoads + uint64(i))
		callers.Go(func() {
			for pause(ctx, time.Duration(r.ExpFloat64()/p.rate*float64(time.Second))) {
				c := &call{domain: p.domain, load: p.kind, user: "u0", sidecar: i, cost: 1}
				callers.Go(func() { w.ask(c, 0) })
			}
		})
	}
	callers.Wait()
}

// showScale writes what the sidecars did.
func (w *world) showScale(t *testing.T) {
	calls := w.calls
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.ended, b.ended) })
	b := balance{domain: w.s.domains[0], level: scaleBurst}
	admitted, over, undecided := 0, 0.0, 0
	for _, c := range calls {
		if c.degraded != "" {
			undecided++
		}
		if c.over {
			continue
		}
		admitted++
		b.take(c.ended, 1)
		over = max(over, -b.level-scaleLimit*(4*w.s.latency).Seconds()) // what was admitted in the time of a call
	}
	asked := w.leases.commands
	fmt.Printf("%s: %d sidecars, %d decisions in %v, %d admitted, %d without redis, %d calls to redis: "+
		"%.4f per decision, over-admission %.0f\n",
		*scale, w.s.sidecars, len(calls), scaleLasts-time.Second, admitted, undecided, asked,
		float64(asked)/float64(len(calls)), max(0, over))
	if over > 0 {
		t.Errorf("%.0f more were admitted than the limit allows", over)
	}
	for _, text := range w.violations {
		t.Error(text)
	}
}
