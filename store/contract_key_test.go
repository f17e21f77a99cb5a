package store

import (
	"context"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

func TestUsageTakesNothing(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		c := charge(t, "k", l, 3)
		wantLeft(t, s, c, 10)
		spend(s, c)
		for range 3 {
			wantLeft(t, s, c, 7)
		}
		want(t, "spend after usage", spend(s, c)[0], limit.Allowed, 3, 4)
	})
}

func TestUsageOfARefundGivesNothingBack(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		c := charge(t, "k", l, 5)
		spend(s, c)
		c.Op = limit.Refund
		usage(s, c)
		wantLeft(t, s, c, 5)
	})
}

func TestResetMakesACounterFull(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s counter, l limit.Limit) {
		a, b := charge(t, "a", l, 3), charge(t, "b", l, 3)
		spend(s, a)
		spend(s, b)
		want(t, "before the reset", spend(s, a)[0], limit.Refused, 0, 0)
		if err := s.Reset(context.Background(), []string{a.Key, "nobody"}); err != nil {
			t.Fatalf("reset: %v", err)
		}
		want(t, "after the reset", spend(s, a)[0], limit.Allowed, 3, 0)
		want(t, "a key that was not reset", spend(s, b)[0], limit.Refused, 0, 0)
	})
}

func TestRaisedLimitKeepsItsCount(t *testing.T) {
	eachCounter(t, 5, func(t *testing.T, s counter, l limit.Limit) {
		spend(s, charge(t, "k", l, 5))
		want(t, "spent", spend(s, charge(t, "k", l, 1))[0], limit.Refused, 0, 0)
		l.Count, l.Burst = 10, 10
		d := spend(s, charge(t, "k", l, 1))[0]
		if d.Outcome != limit.Allowed || d.Remaining > 9 || d.Remaining < 4 {
			t.Fatalf("after raising 5 to 10: outcome %d remaining %d, want allowed and 4 to 9 left", d.Outcome, d.Remaining)
		}
	})
}

func TestLoweredLimitHoldsAtOnce(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		spend(s, charge(t, "k", l, 6))
		l.Count, l.Burst = 5, 5
		d := spend(s, charge(t, "k", l, 6))[0]
		if d.Outcome != limit.Refused || d.Remaining > 5 {
			t.Fatalf("after lowering 10 to 5: outcome %d remaining %d, want refused and at most 5 left", d.Outcome, d.Remaining)
		}
	})
}

func TestKeysDoNotShareCounters(t *testing.T) {
	eachCounter(t, 1, func(t *testing.T, s counter, l limit.Limit) {
		for _, name := range []string{"a", "b", "", "a:b", "\x00", "\xff\xfe", "{x}"} {
			want(t, "first charge of key "+name, spend(s, charge(t, name, l, 1))[0], limit.Allowed, 1, 0)
		}
	})
}

func TestNoChargesAreNoRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		spend(s)
		s.Usage(context.Background(), nil, nil)
		if err := s.Reset(context.Background(), nil); err != nil {
			t.Fatalf("reset of nothing: %v", err)
		}
	})
}

func TestEdgesOfTheNumbers(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		l := limit.Limit{Algorithm: limit.TokenBucket, Count: limit.MaxCount, Window: year, Burst: limit.MaxCount}
		want(t, "all of the largest bucket", spend(s, charge(t, "bucket", l, limit.MaxCount))[0], limit.Allowed, limit.MaxCount, 0)
		l.Algorithm = limit.FixedWindow
		want(t, "all of the largest window", spend(s, charge(t, "fixed", l, limit.MaxCount))[0], limit.Allowed, limit.MaxCount, 0)
		refund := charge(t, "fixed", l, limit.MaxCost)
		refund.Op = limit.Refund
		want(t, "refund of 2^53", spend(s, refund)[0], limit.Allowed, -limit.MaxCount, limit.MaxCount)
		want(t, "2^53 of a tree takes what is left", spend(s, each(charge(t, "fixed", l, limit.MaxCost)))[0], limit.Refused, limit.MaxCount, 0)
	})
}
