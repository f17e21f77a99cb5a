package limit

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"
)

// TestRepliesThatAreRefused: a reply that cannot be one is an error, and decides nothing.
func TestRepliesThatAreRefused(t *testing.T) {
	leaf := []Charge{{Key: "k", Limit: fixed(5, mnt), Cost: 1, Each: true}}
	for name, row := range map[string]struct {
		script *Script
		reply  []int64
	}{
		"empty":             {Together, nil},
		"too short":         {Together, []int64{future, 1, 4, 1, 60}},
		"too long":          {Together, []int64{future, 1, 4, 1, 60, 0, 0}},
		"unknown outcome":   {Together, []int64{future, 7, 4, 1, 60, 0}},
		"negative outcome":  {Together, []int64{future, -1, 4, 1, 60, 0}},
		"negative rest":     {Together, []int64{future, 1, -4, 1, 60, 0}},
		"negative reset":    {Together, []int64{future, 1, 4, 1, -60, 0}},
		"negative wait":     {Together, []int64{future, 2, 4, 1, 60, -1}},
		"huge reset":        {Together, []int64{future, 1, 4, 1, math.MaxInt64, 0}},
		"huge charge":       {Together, []int64{future, 1, 4, math.MinInt64, 60, 0}},
		"no instant":        {Together, []int64{0, 1, 4, 1, 60, 0}},
		"huge instant":      {Log, []int64{math.MaxInt64, 1, 4, 1, 60, 0}},
		"tree, too short":   {Tree, []int64{future, 1}},
		"tree, too long":    {Tree, []int64{future, 1, 1, 1}},
		"tree, negative":    {Tree, []int64{future, -2, 1}},
		"tree, takes more":  {Tree, []int64{future, 2, 1}},
		"tree, no instant":  {Tree, []int64{0, 1, 1}},
		"tree, huge count":  {Tree, []int64{future, 1, math.MaxInt64}},
		"tree, half a sign": {Tree, []int64{future, -1, 1}},
	} {
		decisions := []Decision{{Outcome: Allowed}}
		err := row.script.Decide(row.reply, leaf, decisions)
		if err == nil || !strings.Contains(err.Error(), row.script.Name) || decisions[0] != (Decision{}) {
			t.Errorf("%s: error %v, decision %+v", name, err, decisions[0])
		}
	}
}

// FuzzDecide: no reply makes Decide fail otherwise than by an error, or gives a decision that cannot be one.
func FuzzDecide(f *testing.F) {
	pack := func(numbers ...int64) (b []byte) {
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	f.Add(byte(0), int64(5), int64(1), pack(future, 1, 4, 1, 60, 0))
	f.Add(byte(1), int64(5), int64(1), pack(future, 1, 1))
	f.Add(byte(1), int64(MaxCount), int64(MaxCost), pack(future, -1, -1))
	f.Add(byte(2), int64(0), int64(7), pack(future, 5, 0, 0, 60, 1<<53, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, which byte, count, cost int64, packed []byte) {
		reply := make([]int64, len(packed)/8)
		for i := range reply {
			reply[i] = int64(binary.BigEndian.Uint64(packed[8*i:]))
		}
		script := []*Script{Together, Tree, Log}[which%3]
		charges := make([]Charge, max(len(reply)-1, 0)/[]int{5, 2, 5}[which%3])
		for i := range charges {
			charges[i] = Charge{Limit: fixed(count, mnt), Cost: cost, Each: true}
		}
		decisions := make([]Decision, len(charges))
		err := script.Decide(reply, charges, decisions)
		for _, d := range decisions {
			switch {
			case err != nil && d != (Decision{}):
				t.Fatalf("decided %+v beside the error %v", d, err)
			case min(d.Remaining, int64(d.ResetAfter), int64(d.RetryAfter), int64(d.Wait)) < 0:
				t.Fatalf("decided %+v", d)
			case d.Outcome == Undecided && err == nil && d.Reason == "", d.Outcome > Refused:
				t.Fatalf("decided %+v", d)
			}
		}
	})
}

// TestDecideAllocatesNothing: in memory, for up to four charges.
func TestDecideAllocatesNothing(t *testing.T) {
	var counters [4]Counter
	var cooling Cooling
	pointers := []*Counter{&counters[0], &counters[1], &counters[2], &counters[3]}
	p := &Penalty{Threshold: 3, Window: mnt, CoolDown: sec}
	charges := []Charge{
		{Key: "a", Limit: bucket(100, sec, 100), Cost: 1}, {Key: "b", Limit: fixed(100, sec), Cost: 1, Penalty: p},
		{Key: "c", Limit: sliding(100, sec), Cost: 1}, {Key: "d", Limit: bucket(100, sec, 100), Cost: 200, Mode: Quota},
	}
	decisions, now := make([]Decision, 4), int64(future)
	if n := testing.AllocsPerRun(100, func() {
		now += 1000
		Decide(now, false, charges, pointers, []*Cooling{nil, &cooling, nil, nil}, decisions)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUnitsOfBuckets: the rate is never too high, and too low by no more than the specification states.
func TestUnitsOfBuckets(t *testing.T) {
	for name, row := range map[string]struct {
		limit  Limit
		wait   time.Duration
		within float64
	}{
		"even":              {bucket(100, mnt, 100), 0, 0},
		"sevens":            {bucket(7, sec, 7), 0, 0},
		"a million":         {bucket(1_000_000, sec, 2_000_000), 0, 0},
		"a prime near it":   {bucket(999_983, sec, 999_983), 0, 0},
		"with a throttle":   {bucket(999_983, sec, 999_983), mnt, 0},
		"once a year":       {bucket(1, 365*24*time.Hour, 5), 0, 0},
		"10^9 per hour":     {bucket(1_000_000_007, time.Hour, 1_000_000_007), 0, 2.5e-7},
		"4 × 10^9 per hour": {bucket(4_000_000_007, time.Hour, 4_000_000_007), 0, 1.1e-6},
		"10^12 per hour":    {bucket(999_999_999_989, time.Hour, 999_999_999_989), 0, 2.5e-4},
		"10^9 per ms":       {bucket(1_000_000_007, ms, 1_000_000_007), 0, 1e-6},
		"a century":         {bucket(MaxCount/10, 3650*24*time.Hour, MaxCount), 0, 2.5e-4},
	} {
		if err := row.limit.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, op := range []Op{Spend, Debit} {
			u := termsOf(&Charge{Limit: row.limit, MaxWait: row.wait, Op: op})
			owed := product(u.most+1, u.window) + product(u.debt, u.fine)
			window := float64(row.limit.Window.Microseconds())
			rate := float64(u.fine) / float64(u.window) * window / float64(row.limit.Count)
			if owed > exact || rate > 1+1e-15 || rate < 1-row.within-1e-15 || u.most != row.limit.Burst {
				t.Errorf("%s: rate %.12f of what it should be, %d units owed at most, %+v", name, rate, owed, u)
			}
		}
	}
}
