package store

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/spillway-mesh/spillway/limit"
)

// historyKeys is how many counters a history has at most.
const historyKeys = 3

// asked is the input of one operation: the charges of a request, with the numbers of their counters.
type asked struct {
	charges []limit.Charge
	keys    []int
}

// told is the output of one operation.
type told struct {
	decisions []limit.Decision
	now       int64 // µs since the epoch when it was decided
	unknown   bool  // it is unknown whether it was decided
}

// sequential is a limiter that decides one request after the other. Histories are held against it.
type sequential struct {
	// instant is µs since the epoch, for histories in which no time passes: their windows are so long that nothing comes
	// back. All but the times is compared. 0: each operation names its own instant, and the times are compared, too.
	instant int64
	whole   bool // requests span counters, which cannot be looked at one by one
}

// counters is its state.
type counters struct {
	now    int64
	states [historyKeys]limit.State
}

func (s sequential) model() porcupine.Model {
	m := porcupine.Model{
		Init:  func() any { return counters{} },
		Step:  s.step,
		Equal: func(a, b any) bool { return equal(a.(counters), b.(counters)) },
	}
	if !s.whole {
		m.Partition = byKey
	}
	return m
}

// step decides a request on a copy of the state. That the server's time never runs back is a part of what is checked.
//
// The end of an unknown operation was not seen, so anything goes. It has no end, so one that never ran stands behind all
// others, where it does no harm.
func (s sequential) step(state, input, output any) (bool, any) {
	c, q, a := state.(counters), input.(asked), output.(told)
	now := a.now
	if s.instant > 0 {
		now = s.instant
	}
	if now < c.now {
		return false, c
	}
	c.now = now
	states := make([]*limit.State, len(q.keys))
	for i, k := range q.keys {
		c.states[k].Log = slices.Clone(c.states[k].Log)
		states[i] = &c.states[k]
	}
	decisions := make([]limit.Decision, len(q.charges))
	limit.Decide(states, q.charges, false, now, decisions)
	if a.unknown {
		return true, c
	}
	for i := range decisions {
		if !s.same(decisions[i], a.decisions[i]) {
			return false, c
		}
	}
	return true, c
}

// same compares what is expected with what was told. Of a refusal by memory only the outcome counts.
func (s sequential) same(want, got limit.Decision) bool {
	if s.instant > 0 {
		want.At, want.ResetAfter, want.RetryAfter, got.At, got.ResetAfter, got.RetryAfter = 0, 0, 0, 0, 0, 0
	}
	if got.Cached {
		want.Cached, want.Remaining = true, got.Remaining
	}
	return want == got
}

func equal(a, b counters) bool {
	if a.now != b.now {
		return false
	}
	for i := range a.states {
		x, y := a.states[i], b.states[i]
		if x.At != y.At || x.Rem != y.Rem || x.Used != y.Used || x.Prev != y.Prev || !slices.Equal(x.Log, y.Log) {
			return false
		}
	}
	return true
}

// byKey takes a history apart by counter.
func byKey(history []porcupine.Operation) [][]porcupine.Operation {
	parts := make([][]porcupine.Operation, historyKeys)
	for _, o := range history {
		k := o.Input.(asked).keys[0]
		parts[k] = append(parts[k], o)
	}
	return slices.DeleteFunc(parts, func(p []porcupine.Operation) bool { return len(p) == 0 })
}

// unseen is the end of an operation whose end was not seen.
const unseen = math.MaxInt64

// checkTime is how long the search for an order may take.
const checkTime = 2 * time.Minute

// linearizable says whether some order of the operations explains the history.
func (s sequential) linearizable(t *testing.T, h *history) bool {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(s.model(), h.operations(), checkTime) {
	case porcupine.Ok:
		return true
	case porcupine.Illegal:
		return false
	}
	t.Fatalf("history with seed %d: no verdict after %v", h.seed, checkTime)
	return false
}

// String tells the history in the order in which operations began.
func (h *history) String() string {
	all := h.operations()
	sort.Slice(all, func(i, j int) bool { return all[i].Call < all[j].Call })
	var text strings.Builder
	fmt.Fprintf(&text, "limit %+v\n", h.limit)
	for _, o := range all {
		q, a := o.Input.(asked), o.Output.(told)
		fmt.Fprintf(&text, "%v..%v client %d", time.Duration(o.Call), time.Duration(o.Return), o.ClientId)
		for i, c := range q.charges {
			fmt.Fprintf(&text, " [key %d op %d mode %d each %v cost %d]", q.keys[i], c.Op, c.Mode, c.Each, c.Cost)
		}
		if a.unknown {
			text.WriteString(" unknown\n")
			continue
		}
		fmt.Fprintf(&text, " at %d: %+v\n", a.now, a.decisions)
	}
	return text.String()
}
