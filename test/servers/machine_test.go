package servers

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// A Redis that works on one command for long stands still.
func TestARedisThatStandsStillIsSeen(t *testing.T) {
	redis := StartRedis(t)
	busy := watchMachine(t)
	busy.Watch(redis.Pid())
	redis.Do(t, "EVAL", "local t = redis.call('TIME') local from = t[1] * 1e6 + t[2] repeat t = redis.call('TIME') until t[1] * 1e6 + t[2] > from + 2000000", "0")
	if got := busy.end(t); got.still < standsFrom {
		t.Errorf("beside a script of 2 s: %v", got)
	}
}

// What a trial misses is kept, and does not fail the test by itself.
func TestATrialKeepsWhatItMisses(t *testing.T) {
	try := &trial{TB: t}
	var body sync.WaitGroup
	body.Go(func() {
		try.Error("one")
		try.Errorf("two of %d", 3)
		try.Fatal("three")
		try.Fatalf("what comes after %s", "the end")
	})
	body.Wait()
	if want := []string{"one", "two of 3", "three"}; !slices.Equal(try.missed, want) || !try.Failed() {
		t.Errorf("the trial missed %q, want %q; it failed: %v", try.missed, want, try.Failed())
	}
}

// What no stall explains fails the test at once.
func TestWhatIsWrongIsNoMiss(t *testing.T) {
	outer := &judged{TB: t}
	try := &trial{TB: outer}
	Wrong(try, "more than %d", 5)
	if !outer.failed || len(try.missed) > 0 {
		t.Errorf("the test failed: %v, and the trial missed %q", outer.failed, try.missed)
	}
}

func TestLapsesThatExcuse(t *testing.T) {
	const wait = 40 * time.Millisecond
	for _, row := range []struct {
		lapses lapses
		want   bool
	}{
		{lapses{wait - 1, standsFrom - 1, standsFrom - 1}, false},
		{lapses{waited: wait}, true},
		{lapses{still: standsFrom}, true},
		{lapses{taken: standsFrom}, true},
	} {
		if got := row.lapses.excuse(wait); got != row.want {
			t.Errorf("%v: an excuse: %v, want %v", row.lapses, got, row.want)
		}
	}
}
