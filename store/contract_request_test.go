package store

import (
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

// with changes the mode of a charge.
func with(c limit.Charge, m limit.Mode) limit.Charge {
	c.Mode = m
	return c
}

// each makes a charge one of a descriptor tree.
func each(c limit.Charge) limit.Charge {
	c.Each = true
	return c
}

func TestRequestIsChargedOnAllLimitsOrOnNone(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		small := l
		small.Count, small.Burst = 2, 2
		request := []limit.Charge{charge(t, "wide", l, 1), charge(t, "narrow", small, 1)}
		want(t, "both have room", spend(s, request...)[1], limit.Allowed, 1, 1)
		want(t, "both have room again", spend(s, request...)[0], limit.Allowed, 1, 8)
		for range 3 {
			d := spend(s, request...)
			want(t, "the narrow limit refuses", d[1], limit.Refused, 0, 0)
			want(t, "the wide limit takes nothing", d[0], limit.Allowed, 0, 8)
		}
		wantLeft(t, s, request[0], 8)
	})
}

func TestEachChargeTakesWhatIsLeft(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		want(t, "cost 7 of 10", spend(s, each(charge(t, "k", l, 7)))[0], limit.Allowed, 7, 3)
		want(t, "cost 7 of 3", spend(s, each(charge(t, "k", l, 7)))[0], limit.Refused, 3, 0)
		want(t, "cost 7 of 0", spend(s, each(charge(t, "k", l, 7)))[0], limit.Refused, 0, 0)
		want(t, "cost 1 of 0", spend(s, each(charge(t, "k", l, 1)))[0], limit.Refused, 0, 0)
	})
}

func TestEachChargesCountOnARefusedRequest(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		spent, tree, rule := charge(t, "spent", l, 1), each(charge(t, "tree", l, 1)), charge(t, "rule", l, 1)
		spend(s, charge(t, "spent", l, 10))
		for i := range int64(3) {
			d := spend(s, spent, tree, rule)
			want(t, "the spent rule refuses", d[0], limit.Refused, 0, 0)
			want(t, "the tree counts", d[1], limit.Allowed, 1, 9-i)
			want(t, "the other rule does not", d[2], limit.Allowed, 0, 10)
		}
		wantLeft(t, s, tree, 7)
		wantLeft(t, s, rule, 10)
	})
}

func TestTreeRefusalLeavesRulesUncharged(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		tree, rule := each(charge(t, "tree", l, 1)), charge(t, "rule", l, 1)
		spend(s, each(charge(t, "tree", l, 10)))
		for range 3 {
			d := spend(s, tree, rule)
			want(t, "the tree refuses", d[0], limit.Refused, 0, 0)
			want(t, "the rule is not charged", d[1], limit.Allowed, 0, 10)
		}
		wantLeft(t, s, rule, 10)
	})
}

func TestShadowChargesNeverRefuseTheRequest(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s counter, l limit.Limit) {
		wide := l
		wide.Count, wide.Burst = 10, 10
		shadow, rule := with(charge(t, "shadow", l, 1), limit.Shadow), charge(t, "rule", wide, 1)
		for i := range int64(5) {
			d := spend(s, shadow, rule)
			want(t, "the rule is charged", d[1], limit.Allowed, 1, 9-i)
		}
		want(t, "the shadow limit says no", spend(s, shadow)[0], limit.Refused, 0, 0)
		wantLeft(t, s, rule, 5)
	})
}

func TestQuotaRefusesOnlyWhenAllOfThemDo(t *testing.T) {
	eachCounter(t, 2, func(t *testing.T, s counter, l limit.Limit) {
		wide := l
		wide.Count, wide.Burst = 10, 10
		one, two := with(charge(t, "one", l, 1), limit.Quota), with(charge(t, "two", wide, 1), limit.Quota)
		rule := charge(t, "rule", wide, 1)
		for i := range int64(5) {
			want(t, "one quota has room", spend(s, one, two, rule)[2], limit.Allowed, 1, 9-i)
		}
		wantLeft(t, s, one, 0)
		wantLeft(t, s, two, 5)
		two.Cost = 5
		want(t, "the last of the second quota", spend(s, one, two)[1], limit.Allowed, 5, 0)
		two.Cost = 1
		want(t, "no quota has room", spend(s, one, two, rule)[2], limit.Allowed, 0, 5)
		wantLeft(t, s, rule, 5)
	})
}

func TestOneKeyTwiceInARequest(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s counter, l limit.Limit) {
		a, b := charge(t, "k", l, 3), charge(t, "k", l, 4)
		want(t, "both fit", spend(s, a, b)[1], limit.Allowed, 4, 3)
		refused := 0
		for _, d := range spend(s, a, b) {
			if d.Outcome == limit.Refused {
				refused++
			}
		}
		if refused == 0 {
			t.Fatalf("7 more of 3 left were admitted")
		}
		wantLeft(t, s, a, 3)
	})
}

func TestManyChargesInOneRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		l := limit.Limit{Algorithm: limit.TokenBucket, Count: 5000, Window: year, Burst: 5000}
		var charges []limit.Charge
		for range 3000 {
			c := charge(t, "k", l, 1)
			c.Each = true
			charges = append(charges, c)
		}
		for i, d := range spend(s, charges...) {
			if d.Outcome != limit.Allowed || d.Charged != 1 {
				t.Fatalf("charge %d of 3000: %+v, want one token taken", i+1, d)
			}
		}
		wantLeft(t, s, charges[0], 2000)
	})
}
