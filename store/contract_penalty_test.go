package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// pardoner is what every store does for penalties.
type pardoner interface {
	counter
	Pardon(ctx context.Context, charges []limit.Charge) error
}

// punished gives a charge a penalty, under a key of its own.
func punished(c limit.Charge, p limit.Penalty) limit.Charge {
	c.Penalty, c.PenaltyKey = &p, c.Key+":penalty:pn"
	return c
}

// strict is a penalty that no test sees the end of.
func strict(threshold int64) limit.Penalty {
	return limit.Penalty{Threshold: threshold, Window: year, CoolDown: time.Hour, Multipliers: []int64{1, 2, 4}}
}

// wantPenalty fails the test unless the charge is refused, by a cool-down of about this length or, with 0, by its counter.
func wantPenalty(t *testing.T, what string, d limit.Decision, rest time.Duration) {
	t.Helper()
	if d.Outcome != limit.Refused || d.Charged != 0 || d.Penalized != (rest > 0) {
		t.Fatalf("%s: %+v, want refused, penalized %v", what, d, rest > 0)
	}
	if rest > 0 && (d.RetryAfter > rest || d.RetryAfter < rest-time.Minute) {
		t.Fatalf("%s: retry after %v, want the rest of %v", what, d.RetryAfter, rest)
	}
}

func TestThresholdStartsACoolDown(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s counter, l limit.Limit) {
		c := punished(charge(t, "k", l, 1), strict(3))
		for range 5 {
			want(t, "with tokens left", spend(s, c)[0], limit.Allowed, 1, usage(s, c).Remaining)
		}
		for i := range 3 {
			wantPenalty(t, fmt.Sprintf("refusal %d", i+1), spend(s, c)[0], 0)
		}
		for range 3 {
			wantPenalty(t, "in the cool-down", spend(s, c)[0], time.Hour)
		}
		c.Op = limit.Refund
		want(t, "refund in the cool-down", spend(s, c)[0], limit.Allowed, -1, 1)
		c.Op = limit.Peek
		wantPenalty(t, "peek in the cool-down, with a token left", spend(s, c)[0], time.Hour)
		wantLeft(t, s, c, 1)
		other := charge(t, "k", l, 1)
		want(t, "a charge without the penalty", spend(s, other)[0], limit.Allowed, 1, 0)
	})
}

func TestPardonEndsACoolDownAndItsHistory(t *testing.T) {
	eachCounter(t, 1, func(t *testing.T, s counter, l limit.Limit) {
		c, other := punished(charge(t, "k", l, 2), strict(1)), punished(charge(t, "other", l, 2), strict(1))
		for round := range 3 {
			wantPenalty(t, "the first refusal", spend(s, c)[0], 0)
			wantPenalty(t, fmt.Sprintf("in the cool-down, round %d", round), spend(s, c)[0], time.Hour)
			wantPenalty(t, "and again", spend(s, c)[0], time.Hour)
			spend(s, other)
			err := s.(pardoner).Pardon(context.Background(), []limit.Charge{c, charge(t, "nobody", l, 1)})
			if err != nil {
				t.Fatalf("pardon: %v", err)
			}
			wantPenalty(t, "another client", spend(s, other)[0], time.Hour)
		}
		c.Cost = 1
		want(t, "a cost that fits", spend(s, c)[0], limit.Allowed, 1, 0)
	})
}

func TestCoolDownEndsAndRises(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		p := limit.Penalty{Threshold: 2, Window: year, CoolDown: 20 * time.Millisecond, Multipliers: []int64{1, 1 << 17}}
		c := punished(charge(t, "k", bucket(1, year), 2), p)
		spend(s, c)
		spend(s, c)
		servers.Await(t, "the end of the cool-down", func() error {
			if d := spend(s, c)[0]; d.Penalized {
				return fmt.Errorf("%v to go", d.RetryAfter)
			}
			return nil
		})
		wantPenalty(t, "the second refusal after it", spend(s, c)[0], 0)
		wantPenalty(t, "the second cool-down", spend(s, c)[0], p.CoolDown<<17)
	})
}

func TestPenaltyThatIsOnlyShown(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s counter, l limit.Limit) {
		dry := strict(1)
		dry.DryRun = true
		for name, c := range map[string]limit.Charge{
			"dry run": punished(charge(t, "dry", l, 1), dry),
			"shadow":  with(punished(charge(t, "shadow", l, 1), strict(1)), limit.Shadow),
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
			for range 3 {
				if d := spend(s, c)[0]; d.Outcome != limit.Refused || !d.Penalized || d.RetryAfter == time.Hour {
					t.Fatalf("%s: %+v, want refused by the counter and penalized", name, d)
				}
			}
		}
	})
}

// TestRefusedRequestRecordsOnlyWhatRefused: nothing is charged, and only the limit that refused has a refusal.
func TestRefusedRequestRecordsOnlyWhatRefused(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s counter, l limit.Limit) {
		spent, room := punished(charge(t, "spent", l, 1), strict(2)), punished(charge(t, "room", l, 1), strict(1))
		plain := charge(t, "plain", l, 1)
		spend(s, charge(t, "spent", l, 5))
		for i, rest := range []time.Duration{0, 0, time.Hour, time.Hour} {
			d := spend(s, room, spent, plain)
			wantPenalty(t, fmt.Sprintf("refusal %d", i+1), d[1], rest)
			want(t, "the limit with room", d[0], limit.Allowed, 0, 5)
			want(t, "the limit without a penalty", d[2], limit.Allowed, 0, 5)
		}
		want(t, "the limit with room, alone", spend(s, room, plain)[0], limit.Allowed, 1, 4)
	})
}

// TestLimitsOfOneRuleShareItsPenalty: a request that both refuse is one refusal, and the cool-down refuses both.
func TestLimitsOfOneRuleShareItsPenalty(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s counter, l limit.Limit) {
		one, two := punished(charge(t, "one", l, 6), strict(3)), punished(charge(t, "two", l, 6), strict(3))
		two.PenaltyKey = one.PenaltyKey
		for range 3 {
			d := spend(s, one, two)
			wantPenalty(t, "the first limit", d[0], 0)
			wantPenalty(t, "the second limit", d[1], 0)
		}
		two.Cost = 1
		for range 3 {
			d := spend(s, one, two)
			wantPenalty(t, "the first limit", d[0], time.Hour)
			wantPenalty(t, "the second limit, which has room", d[1], time.Hour)
		}
		wantPenalty(t, "the second limit alone", spend(s, two)[0], time.Hour)
	})
}

// TestContentionStartsOneCoolDown: of many refusals at once exactly the threshold are the counter's, all others the
// cool-down's.
func TestContentionStartsOneCoolDown(t *testing.T) {
	const threshold = 40
	eachStore(t, func(t *testing.T, s counter) {
		for round := range 20 {
			c := punished(charge(t, fmt.Sprint(round), bucket(1, year), 2), strict(threshold))
			var counted, cooling atomic.Int64
			var all sync.WaitGroup
			for range goroutines {
				all.Go(func() {
					d := spend(s, c)[0]
					switch {
					case d.Penalized && d.RetryAfter <= time.Hour:
						cooling.Add(1)
					case d.Outcome == limit.Refused && !d.Penalized:
						counted.Add(1)
					}
				})
			}
			all.Wait()
			if counted.Load() != threshold || cooling.Load() != goroutines-threshold {
				t.Fatalf("round %d: %d refusals by the counter and %d by the cool-down, want %d and %d",
					round, counted.Load(), cooling.Load(), threshold, goroutines-threshold)
			}
		}
	})
}
