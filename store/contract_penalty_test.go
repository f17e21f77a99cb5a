package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// penalized gives a charge a penalty, under a key of its own.
func penalized(c limit.Charge, p limit.Penalty) limit.Charge {
	c.Penalty, c.PenaltyKey = &p, c.Key+":penalty"
	return c
}

// strict is a penalty that no test sees the end of.
func strict(threshold int64) limit.Penalty {
	return limit.Penalty{Threshold: threshold, Window: year, CoolDown: time.Hour, Multipliers: []int64{1, 2, 4}}
}

// wantPenalty fails the test unless the charge is refused, by a cool-down of about this length or, with 0, by its
// counter.
func wantPenalty(t *testing.T, what string, d limit.Decision, rest time.Duration) {
	t.Helper()
	if d.Outcome != limit.Refused || d.Charged != 0 || d.Penalized != (rest > 0) {
		t.Fatalf("%s: %+v, want refused, penalized %v", what, d, rest > 0)
	}
	if rest > 0 {
		wantAbout(t, what+": retry after", d.RetryAfter, rest)
	}
}

func TestContractOfAPenalty(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s Counter, l limit.Limit) {
		c := penalized(charge(t, "k", l, 1), strict(3))
		for i := range int64(5) {
			want(t, "with tokens left", spend(s, c)[0], limit.Allowed, 1, 4-i)
		}
		for i := range 3 {
			wantPenalty(t, fmt.Sprintf("refusal %d", i+1), spend(s, c)[0], 0)
		}
		for range 3 {
			wantPenalty(t, "in the cool-down", spend(s, c)[0], time.Hour)
		}
		want(t, "refund in the cool-down", spend(s, op(c, limit.Refund))[0], limit.Allowed, -1, 1)
		wantPenalty(t, "peek in the cool-down, with a token left", spend(s, op(c, limit.Peek))[0], time.Hour)
		wantLeft(t, s, c, 1)
		want(t, "a charge without the penalty", spend(s, charge(t, "k", l, 1))[0], limit.Allowed, 1, 0)
	})
}

func TestContractOfAPardon(t *testing.T) {
	eachCounter(t, 1, func(t *testing.T, s Counter, l limit.Limit) {
		c, other := penalized(charge(t, "k", l, 2), strict(1)), penalized(charge(t, "other", l, 2), strict(1))
		for round := range 2 {
			wantPenalty(t, "the first refusal", spend(s, c)[0], 0)
			wantPenalty(t, fmt.Sprintf("in the cool-down, round %d", round), spend(s, c)[0], time.Hour)
			wantPenalty(t, "and again", spend(s, c)[0], time.Hour)
			spend(s, other)
			err := s.Reset(t.Context(), []string{c.PenaltyKey, "unknown"})
			if err != nil {
				t.Fatalf("reset: %v", err)
			}
			wantPenalty(t, "another client", spend(s, other)[0], time.Hour)
		}
		c.Cost = 1
		want(t, "a cost that fits", spend(s, c)[0], limit.Allowed, 1, 0)
	})
}

func TestContractOfAPenaltyThatOnlyShows(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s Counter, l limit.Limit) {
		dry := strict(1)
		dry.DryRun = true
		for name, c := range map[string]limit.Charge{
			"dry run": penalized(charge(t, "dry", l, 1), dry),
			"shadow":  with(penalized(charge(t, "shadow", l, 1), strict(1)), limit.Shadow),
		} {
			large := c
			large.Cost = 4
			wantPenalty(t, name+": a cost that never passes", spend(s, large)[0], 0)
			for i := range int64(3) {
				d := spend(s, c)[0]
				want(t, name, d, limit.Allowed, 1, 2-i)
				if !d.Penalized {
					t.Fatalf("%s: %+v, want penalized", name, d)
				}
			}
			if d := spend(s, c)[0]; d.Outcome != limit.Refused || !d.Penalized || d.RetryAfter == time.Hour {
				t.Fatalf("%s: %+v, want refused by the counter and penalized", name, d)
			}
		}
	})
}

// TestContractOfASharedPenalty: a request that both limits refuse is one refusal, and the cool-down refuses both.
func TestContractOfASharedPenalty(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s Counter, l limit.Limit) {
		one, two := penalized(charge(t, "k", l, 6), strict(3)), penalized(charge(t, "k", l, 6), strict(3))
		two.Key += ":two"
		for range 3 {
			d := spend(s, one, two)
			wantPenalty(t, "the first limit", d[0], 0)
			wantPenalty(t, "the second limit", d[1], 0)
		}
		two.Cost = 1
		for range 2 {
			d := spend(s, one, two)
			wantPenalty(t, "the first limit", d[0], time.Hour)
			wantPenalty(t, "the second limit, which has room", d[1], time.Hour)
		}
		wantPenalty(t, "the second limit alone", spend(s, two)[0], time.Hour)
	})
}

// TestContractOfContention: many refusals at once start one cool-down, with the threshold, and are counted by one of
// both.
func TestContractOfContention(t *testing.T) {
	const threshold, callers = 40, 64
	eachStore(t, func(t *testing.T, s Counter) {
		for round := range 5 {
			c := penalized(charge(t, fmt.Sprint(round), bucket(1, year), 2), strict(threshold))
			var counted, cooling atomic.Int64
			crowd(callers, func(int) {
				switch d := spend(s, c)[0]; {
				case d.Penalized && d.RetryAfter <= time.Hour:
					cooling.Add(1)
				case d.Outcome == limit.Refused && !d.Penalized:
					counted.Add(1)
				}
			})
			if counted.Load() < threshold || counted.Load()+cooling.Load() != callers {
				t.Fatalf("round %d: %d refusals by the counter and %d by the cool-down, want at least %d and %d "+
					"together",
					round, counted.Load(), cooling.Load(), threshold, callers)
			}
			wantPenalty(t, "after them", spend(s, c)[0], time.Hour)
		}
	})
}
