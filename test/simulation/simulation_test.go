package simulation

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	from    = flag.Uint64("from", 1, "the first of the seeds to simulate")
	seeds   = flag.Int("seeds", usualSeeds, "simulate so many seeds")
	first   = flag.Bool("first", false, "begin no further seed when one has failed")
	oneSeed = flag.Uint64("seed", 0, "simulate this seed, in this process")
	traced  = flag.Bool("trace", false, "write the trace of -seed")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// TestSeed simulates the seed of -seed. It does nothing without: TestSeeds and tools/simulate begin a process of its
// own for each seed, because the Redis client library keeps timers in a pool, which two bubbles must not share.
func TestSeed(t *testing.T) {
	if *oneSeed == 0 {
		return
	}
	cryptotest.SetGlobalRandom(t, *oneSeed)
	w := simulate(t, *oneSeed, *traced)
	fmt.Println(w.totals())
}

// simulate runs one seed in a bubble, where time passes when all goroutines wait.
func simulate(t *testing.T, seed uint64, traced bool) *world {
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
	w.report()
	return w
}
