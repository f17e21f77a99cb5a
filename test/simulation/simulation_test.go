//go:build full

package simulation

import (
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

)

var (
	seeds   = flag.Int("seeds", 32, "simulate so many seeds, from 1 on")
	first   = flag.Bool("first", false, "begin no further seed when one has failed")
	oneSeed = flag.Uint64("seed", 0, "simulate this seed")
	traced  = flag.Bool("trace", false, "write the trace of -seed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// totals are what all seeds did together.
var totals struct{ seeds, seconds, decisions, undecided, faults atomic.Int64 }

// found is set when a seed has failed.
var found atomic.Bool

// TestSeeds simulates the first seeds.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		return
	}
	began := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for seed := uint64(1); seed <= uint64(*seeds); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if !*first || !found.Load() {
					simulate(t, seed, false)
				}
			})
		}
	})
	logTotals(t, began)
}

// TestSeed simulates one seed, which tools/simulate names. It does nothing without -seed.
func TestSeed(t *testing.T) {
	if *oneSeed == 0 {
		return
	}
	cryptotest.SetGlobalRandom(t, *oneSeed)
	simulate(t, *oneSeed, *traced)
	bad := 0
	if t.Failed() {
		bad = 1
	}
	fmt.Println("totals:", totals.seconds.Load(), totals.decisions.Load(), totals.undecided.Load(),
		totals.faults.Load(), bad)
}

func logTotals(t *testing.T, began time.Time) {
	hours := time.Duration(totals.seconds.Load()) * time.Second
	t.Logf("%d seeds, %.2f virtual hours, %d decisions, %d of them without redis, %d faults, in %v",
		totals.seeds.Load(), hours.Hours(), totals.decisions.Load(), totals.undecided.Load(), totals.faults.Load(),
		time.Since(began).Round(time.Millisecond))
}

// simulate runs one seed in a bubble, where time passes when all goroutines wait.
func simulate(t *testing.T, seed uint64, traced bool) {
	folder := t.TempDir()
	s := newScenario(seed)
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = begin(t, s, folder, traced)
		w.run()
		w.end()
	})
	w.T, w.over = t, true
	w.judge()
	w.count()
	w.report()
}

func (w *world) count() {
	totals.seeds.Add(1)
	totals.faults.Add(int64(len(w.s.faults)))
	totals.seconds.Add(int64((w.s.lasts + calmFor) / time.Second))
	totals.decisions.Add(int64(len(w.calls)))
	for _, c := range w.calls {
		if c.degraded != "" {
			totals.undecided.Add(1)
		}
	}
}
