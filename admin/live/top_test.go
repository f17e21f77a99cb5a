package live

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestHeavyKeysAreFoundWithinTheError sends far more keys than there is room for, a few of them often.
func TestHeavyKeysAreFoundWithinTheError(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	top := NewTop(64, func() time.Time { return now })
	real := map[string]int64{}
	r := rand.New(rand.NewPCG(1, 2))
	top.draw = r.Uint32N // the same samples in every run
	for n := range 200_000 {
		key := fmt.Sprint("rare-", r.IntN(50_000))
		if n%4 == 0 {
			key = fmt.Sprint("heavy-", r.IntN(5))
		}
		real[key]++
		if top.Sampled() {
			top.Note("shop", "each", key, n%8 == 0)
		}
		if n%2000 == 0 {
			now = now.Add(10 * time.Millisecond)
		}
	}
	got := top.Ranking()
	if got.Every == 1 {
		t.Error("200,000 decisions in a second are not sampled")
	}
	for i := range 5 {
		one := got.Asked[i]
		if off := one.Count - real[one.Key]; real[one.Key] < 5000 || off > one.Error || -off > one.Error {
			t.Errorf("place %d: %+v, in truth %d", i+1, one, real[one.Key])
		}
	}
	if len(got.Asked) > 128 || len(got.Refused) == 0 {
		t.Errorf("%d asked and %d refused are listed", len(got.Asked), len(got.Refused))
	}
}

func TestARankingForgets(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	top := NewTop(16, func() time.Time { return now })
	top.Note("shop", "each", "old", true)
	now = now.Add(topSpan)
	top.Note("shop", "each", "new", false)
	if got := top.Ranking(); len(got.Asked) != 2 || len(got.Refused) != 1 {
		t.Errorf("after a generation: %+v", got)
	}
	now = now.Add(topSpan)
	if got := top.Ranking(); len(got.Asked) != 1 || len(got.Refused) != 0 {
		t.Errorf("after two generations: %+v", got)
	}
}

func TestMergedRankingsAddUpAndTellTheirError(t *testing.T) {
	one := Ranking{Every: 1, Asked: []Ranked{{Domain: "d", Rule: "r", Key: "a", Count: 10}}, Floor: [2]int64{3, 0}}
	other := Ranking{Every: 2, Asked: []Ranked{{Domain: "d", Rule: "r", Key: "a", Count: 5, Error: 1},
		{Domain: "d", Rule: "r", Key: "b", Count: 9}}, Floor: [2]int64{4, 0}}
	got := Merge([]Ranking{one, other})
	if got.Asked[0] != (Ranked{"d", "r", "a", 15, 1}) || got.Asked[1] != (Ranked{"d", "r", "b", 9, 3}) ||
		got.Every != 2 || got.Floor[0] != 7 {
		t.Errorf("merged: %+v", got)
	}
}

func TestNotingAllocatesNothing(t *testing.T) {
	top := NewTop(64, time.Now)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	n := 0
	got := testing.AllocsPerRun(5000, func() {
		n++
		if top.Sampled() {
			top.Note("shop", "each", keys[n%len(keys)], n%2 == 0)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations per decision", got)
	}
}

func BenchmarkSampled(b *testing.B) {
	top := NewTop(1024, time.Now)
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	n := 0
	for b.Loop() {
		n++
		if top.Sampled() {
			top.Note("shop", "each", keys[n%len(keys)], n%2 == 0)
		}
	}
}

// TestARankingIsOfTheLastTwoMinutes asks after an hour without a request.
func TestARankingIsOfTheLastTwoMinutes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	top := NewTop(8, func() time.Time { return now })
	top.Note("shop", "each", "old", true)
	now = now.Add(time.Hour)
	if r := top.Ranking(); now.Sub(r.Since) > 2*topSpan || len(r.Refused) > 0 {
		t.Errorf("an hour later the ranking is since %v ago, and lists %+v", now.Sub(r.Since), r.Refused)
	}
}

// TestTheErrorOfSamplesStays counts a flood by samples, and asks when it is quiet again.
func TestTheErrorOfSamplesStays(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	top := NewTop(8, func() time.Time { return now })
	top.draw = rand.New(rand.NewPCG(1, 2)).Uint32N // the same samples in every run
	real := int64(0)
	decide := func() {
		real++
		if top.Sampled() {
			top.Note("shop", "each", "ann", false)
		}
	}
	for range 200_000 { // in two seconds
		decide()
		now = now.Add(10 * time.Microsecond)
	}
	for range 2000 { // in twenty seconds
		decide()
		now = now.Add(10 * time.Millisecond)
	}
	r := top.Ranking()
	one := r.Asked[0]
	if off := one.Count - real; off > one.Error || -off > one.Error {
		t.Errorf("%+v, in truth %d; sampled one in %d", one, real, r.Every)
	}
}
