package journal_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/journal"
)

func TestBuckets(t *testing.T) {
	for latency, want := range map[time.Duration]int{
		-1: 0, 0: 0, time.Microsecond: 0, 1001: 1, 1100: 1, 1101: 2, 1210: 2, 1211: 3, time.Millisecond: 73,
		time.Second: 145, math.MaxInt64: journal.Buckets - 1,
	} {
		if got := journal.BucketOf(latency); got != want {
			t.Errorf("%v is in bucket %d, want %d", latency, got, want)
		}
	}
	for i := range journal.Buckets - 1 {
		last := time.Duration(math.Round(math.Pow(journal.Gamma, float64(i)) * 1000))
		if at, next := journal.BucketOf(last), journal.BucketOf(last+1); at != i || next != i+1 {
			t.Errorf("%v and %v are in buckets %d and %d, want %d and %d", last, last+1, at, next, i, i+1)
		}
	}
}

// TestQuantilesAreNear compares the quantiles of two merged sketches with those of the latencies themselves.
func TestQuantilesAreNear(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var a, b journal.Sketch
	for i := range 10_000 {
		latency := time.Duration(math.Exp(random.NormFloat64()) * float64(time.Millisecond))
		all = append(all, latency)
		if i%2 == 0 {
			a.Add(latency, 1)
		} else {
			b.Add(latency, 1)
		}
	}
	whole := journal.Sketch{}
	whole.Merge(a)
	whole.Merge(b)
	if whole.Count() != int64(len(all)) {
		t.Errorf("%d latencies, want %d", whole.Count(), len(all))
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.95, 0.99, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		got := whole.Quantile(q)
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("p%v is %v, want %v", 100*q, got, want)
		}
	}
	other := journal.Sketch{}
	other.Merge(b)
	other.Merge(a)
	if diff := cmp.Diff(whole, other); diff != "" {
		t.Errorf("the order of merging must not matter:\n%s", diff)
	}
	if (&journal.Sketch{}).Quantile(0.5) != 0 {
		t.Error("an empty sketch must not have a quantile")
	}
}
