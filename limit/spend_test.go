package limit_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/limit"
)

// several decides charges at start on states by key, all fresh, after setting Used of some. It returns what was charged
// and said, as "+3" for allowed with 3 charged, "-0" for refused.
func several(t *testing.T, used map[string]int64, refused bool, charges ...limit.Charge) ([]string, map[string]int64) {
	t.Helper()
	byKey := map[string]*limit.State{}
	states := make([]*limit.State, len(charges))
	for i := range charges {
		c := &charges[i]
		if c.Limit.Algorithm == 0 {
			c.Limit = bucket(10, sec, 10)
		}
		if byKey[c.Key] == nil {
			byKey[c.Key] = &limit.State{}
			if n := used[c.Key]; n > 0 {
				*byKey[c.Key] = limit.State{At: start, Used: n}
			}
		}
		states[i] = byKey[c.Key]
	}
	decisions := make([]limit.Decision, len(charges))
	limit.Decide(states, charges, refused, start, decisions)
	var said []string
	for _, d := range decisions {
		said = append(said, fmt.Sprintf("%s%d", map[limit.Outcome]string{limit.Allowed: "+", limit.Refused: "-"}[d.Outcome], d.Charged))
	}
	after := map[string]int64{}
	for key, s := range byKey {
		after[key] = s.Used
	}
	return said, after
}

func TestDecideSeveralCharges(t *testing.T) {
	on := func(key string, cost int64) limit.Charge { return limit.Charge{Key: key, Cost: cost} }
	each := func(c limit.Charge) limit.Charge { c.Each = true; return c }
	mode := func(m limit.Mode, c limit.Charge) limit.Charge { c.Mode = m; return c }
	op := func(o limit.Op, c limit.Charge) limit.Charge { c.Op = o; return c }
	for _, test := range []struct {
		name    string
		used    map[string]int64
		refused bool
		charges []limit.Charge
		said    []string
		after   map[string]int64
	}{
		{"all pass", nil, false, []limit.Charge{on("a", 3), on("b", 4)}, []string{"+3", "+4"}, map[string]int64{"a": 3, "b": 4}},
		{"one refuses and none is charged", map[string]int64{"b": 8}, false,
			[]limit.Charge{on("a", 3), on("b", 4), on("c", 1)}, []string{"+0", "-0", "+0"}, map[string]int64{"a": 0, "b": 8, "c": 0}},
		{"each pays all the same", map[string]int64{"b": 8}, false,
			[]limit.Charge{each(on("a", 3)), each(on("b", 4)), on("c", 1)}, []string{"+3", "-2", "+0"}, map[string]int64{"a": 3, "b": 10, "c": 0}},
		{"refused by another", nil, true,
			[]limit.Charge{on("a", 3), each(on("b", 4))}, []string{"+0", "+4"}, map[string]int64{"a": 0, "b": 4}},
		{"refused by another, alone", nil, true, []limit.Charge{on("a", 3)}, []string{"+0"}, map[string]int64{"a": 0}},
		{"each refused by another, alone", nil, true, []limit.Charge{each(on("a", 3))}, []string{"+3"}, map[string]int64{"a": 3}},
		{"a shadow refuses no request", map[string]int64{"b": 8}, false,
			[]limit.Charge{on("a", 3), mode(limit.Shadow, on("b", 4))}, []string{"+3", "-0"}, map[string]int64{"a": 3, "b": 8}},
		{"a shadow with each takes what is left", map[string]int64{"b": 8}, false,
			[]limit.Charge{on("a", 3), each(mode(limit.Shadow, on("b", 4)))}, []string{"+3", "-2"}, map[string]int64{"a": 3, "b": 10}},
		{"one quota with room is enough", map[string]int64{"a": 10}, false,
			[]limit.Charge{mode(limit.Quota, on("a", 3)), mode(limit.Quota, on("b", 4))}, []string{"-0", "+4"}, map[string]int64{"a": 10, "b": 4}},
		{"all quotas spent refuse", map[string]int64{"a": 10, "b": 9}, false,
			[]limit.Charge{mode(limit.Quota, on("a", 3)), mode(limit.Quota, on("b", 4)), on("c", 1)}, []string{"-0", "-0", "+0"}, map[string]int64{"a": 10, "b": 9, "c": 0}},
		{"quotas with room do not save from an enforced limit", map[string]int64{"b": 10}, false,
			[]limit.Charge{mode(limit.Quota, on("a", 3)), on("b", 1)}, []string{"+0", "-0"}, map[string]int64{"a": 0, "b": 10}},
		{"charges on one key see each other", nil, false,
			[]limit.Charge{on("a", 6), on("a", 4)}, []string{"+6", "+4"}, map[string]int64{"a": 10}},
		{"and are refused together", nil, false,
			[]limit.Charge{on("a", 6), on("a", 5)}, []string{"+0", "-0"}, map[string]int64{"a": 0}},
		{"what a limit said stays when only each pays", nil, false,
			[]limit.Charge{on("a", 6), each(on("a", 5))}, []string{"+0", "-5"}, map[string]int64{"a": 5}},
		{"a refused request gives nothing back and owes nothing", map[string]int64{"a": 5, "c": 10}, false,
			[]limit.Charge{op(limit.Refund, on("a", 2)), op(limit.Debit, on("b", 2)), on("c", 1)}, []string{"+0", "+0", "-0"}, map[string]int64{"a": 5, "b": 0, "c": 10}},
		{"unless each", map[string]int64{"a": 5, "c": 10}, false,
			[]limit.Charge{each(op(limit.Refund, on("a", 2))), each(op(limit.Debit, on("b", 12))), on("c", 1)}, []string{"+-2", "+12", "-0"}, map[string]int64{"a": 3, "b": 12, "c": 10}},
		{"a peek pays nothing", map[string]int64{"b": 10}, false,
			[]limit.Charge{each(op(limit.Peek, on("a", 2))), mode(limit.Shadow, op(limit.Peek, on("b", 1)))}, []string{"+0", "-0"}, map[string]int64{"a": 0, "b": 10}},
		{"costs beyond all bounds", map[string]int64{"a": 1}, false,
			[]limit.Charge{mode(limit.Shadow, on("a", 1<<62)), on("b", -5)}, []string{"-0", "+0"}, map[string]int64{"a": 1, "b": 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			said, after := several(t, test.used, test.refused, test.charges...)
			if diff := cmp.Diff(test.said, said); diff != "" {
				t.Errorf("said and charged (- want, + got):\n%s", diff)
			}
			if diff := cmp.Diff(test.after, after); diff != "" {
				t.Errorf("used afterwards (- want, + got):\n%s", diff)
			}
		})
	}
}

// TestDecideReportsWhatIsLeftAfterAll looks at the numbers of a refused request, which are those after what was charged.
func TestDecideReportsWhatIsLeftAfterAll(t *testing.T) {
	a, b := &limit.State{}, &limit.State{At: start, Used: 10}
	decisions := make([]limit.Decision, 2)
	charges := []limit.Charge{{Key: "a", Limit: bucket(10, sec, 10), Cost: 4}, {Key: "b", Limit: bucket(10, sec, 10), Cost: 4}}
	limit.Decide([]*limit.State{a, b}, charges, false, start, decisions)
	want := []limit.Decision{
		{At: start, Outcome: limit.Allowed, Remaining: 10},
		{At: start, Outcome: limit.Refused, ResetAfter: sec, RetryAfter: 400 * ms},
	}
	if diff := cmp.Diff(want, decisions); diff != "" {
		t.Errorf("decisions (- want, + got):\n%s", diff)
	}
}

// TestDecideMany takes the way of requests with hundreds of charges, some on shared keys.
func TestDecideMany(t *testing.T) {
	var charges []limit.Charge
	for i := range 300 {
		charges = append(charges, limit.Charge{Key: fmt.Sprint(i % 100), Cost: 3})
	}
	said, after := several(t, nil, false, charges...)
	if slices.ContainsFunc(said, func(s string) bool { return s != "+3" }) {
		t.Errorf("300 charges of 3 on 100 keys of 10 got %v", said)
	}
	for key, used := range after {
		if used != 9 {
			t.Errorf("key %s has %d used, want 9", key, used)
		}
	}
	said, after = several(t, map[string]int64{"99": 2}, false, charges...)
	if said[299] != "-0" || said[0] != "+0" || after["0"] != 0 || after["99"] != 2 {
		t.Errorf("one refusal of 300 left %v used, first said %s, last %s", after["0"], said[0], said[299])
	}
}

func TestDecideRefusesLimitsThatAreNone(t *testing.T) {
	for _, l := range []limit.Limit{{}, {Algorithm: 99, Count: 1, Window: sec}, {Algorithm: limit.FixedWindow, Count: 1}, {Algorithm: limit.TokenBucket, Count: -1, Window: sec}} {
		var d [1]limit.Decision
		limit.Decide([]*limit.State{{}}, []limit.Charge{{Limit: l, Cost: 1}}, false, start, d[:])
		if d[0].Outcome != limit.Refused || d[0].RetryAfter <= 0 {
			t.Errorf("limit %+v, which is none, said %+v", l, d[0])
		}
	}
}

func TestDecideAllocatesNothing(t *testing.T) {
	for _, kind := range kinds {
		for size := 1; size <= 4; size++ {
			states, charges := make([]*limit.State, size), make([]limit.Charge, size)
			decisions := make([]limit.Decision, size)
			for i := range charges {
				states[i] = &limit.State{Log: make([]limit.Entry, 0, 4096)}
				charges[i] = limit.Charge{Limit: limit.Limit{Algorithm: kind, Count: 1000, Window: sec, Burst: 1000}, Cost: 1}
			}
			now := int64(start)
			allocs := testing.AllocsPerRun(500, func() {
				now += 700
				limit.Decide(states, charges, false, now, decisions)
			})
			if allocs > 0 {
				t.Errorf("%v: %d charges allocate %v times", kind, size, allocs)
			}
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, kind := range kinds {
		for _, size := range []int{1, 3} {
			b.Run(fmt.Sprint(kind, "/", size), func(b *testing.B) {
				states, charges := make([]*limit.State, size), make([]limit.Charge, size)
				decisions := make([]limit.Decision, size)
				for i := range charges {
					states[i] = &limit.State{}
					charges[i] = limit.Charge{Limit: limit.Limit{Algorithm: kind, Count: 1000, Window: sec, Burst: 1000}, Cost: 1}
				}
				now := int64(start)
				b.ReportAllocs()
				for b.Loop() {
					now += 900
					limit.Decide(states, charges, false, now, decisions)
				}
			})
		}
	}
}

// TestAWindowOfZeroEndsWithItsWindow, as every other one does.
func TestAWindowOfZeroEndsWithItsWindow(t *testing.T) {
	var s limit.State
	d := spend(t, &s, limit.Charge{Limit: fixed(0, time.Hour), Cost: 1}, (3600*1000+3056)*int64(1e6))
	if d.ResetAfter != 544*time.Second || d.RetryAfter != 544*time.Second {
		t.Errorf("it ends after %v, and may be tried after %v; want 544s", d.ResetAfter, d.RetryAfter)
	}
}
