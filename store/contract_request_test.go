package store

import (
	"fmt"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

// TestContractOfARequest: it is charged on all limits or on none, but for trees, which are charged also when it is
// refused.
func TestContractOfARequest(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s Counter, l limit.Limit) {
		spent, tree, rule := charge(t, "spent", l, 1), each(charge(t, "tree", l, 1)), charge(t, "rule", l, 1)
		for _, d := range spend(s, spent, tree, rule) {
			want(t, "while all have room", d, limit.Allowed, 1, 9)
		}
		spend(s, charge(t, "spent", l, 9))
		for i := range int64(3) {
			d := spend(s, spent, tree, rule)
			want(t, "the spent rule refuses", d[0], limit.Refused, 0, 0)
			want(t, "the tree counts", d[1], limit.Allowed, 1, 8-i)
			want(t, "the other rule does not", d[2], limit.Allowed, 0, 9)
		}
		spend(s, each(charge(t, "tree", l, 6)))
		for range 3 {
			d := spend(s, tree, rule)
			want(t, "the tree refuses", d[0], limit.Refused, 0, 0)
			want(t, "the rule is not charged", d[1], limit.Allowed, 0, 9)
		}
		wantLeft(t, s, rule, 9)
	})
}

func TestContractOfAShadow(t *testing.T) {
	eachCounter(t, 3, func(t *testing.T, s Counter, l limit.Limit) {
		wide := l
		wide.Count, wide.Burst = 10, 10
		shadow, rule := with(charge(t, "shadow", l, 1), limit.Shadow), charge(t, "rule", wide, 1)
		for i := range int64(5) {
			want(t, "the rule is charged", spend(s, shadow, rule)[1], limit.Allowed, 1, 9-i)
		}
		want(t, "the shadow limit is spent", spend(s, shadow)[0], limit.Refused, 0, 0)
		wantLeft(t, s, rule, 5)
	})
}

func TestContractOfQuotas(t *testing.T) {
	eachCounter(t, 2, func(t *testing.T, s Counter, l limit.Limit) {
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

func TestContractOfOneKeyTwice(t *testing.T) {
	eachCounter(t, 10, func(t *testing.T, s Counter, l limit.Limit) {
		a, b := charge(t, "k", l, 3), charge(t, "k", l, 4)
		want(t, "both fit", spend(s, a, b)[1], limit.Allowed, 4, 3)
		if d := spend(s, a, b); !limit.Refuses([]limit.Charge{a, b}, d) {
			t.Fatalf("7 more of 3 left were admitted: %+v", d)
		}
		wantLeft(t, s, a, 3)
	})
}

func TestContractOfManyCharges(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		var charges []limit.Charge
		for i := range 1000 {
			charges = append(charges, each(charge(t, fmt.Sprint(i%7), bucket(500, year), 1)))
		}
		for i, d := range spend(s, charges...) {
			if d.Outcome != limit.Allowed || d.Charged != 1 {
				t.Fatalf("charge %d of 1000: %+v, want one token taken", i+1, d)
			}
		}
		wantLeft(t, s, charges[6], 500-142)
	})
}

// TestContractOfManyRequests: those that are asked together are decided each by itself.
func TestContractOfManyRequests(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		var all []*limit.Request
		for i := range 20 {
			own, shared := charge(t, fmt.Sprint("own ", i), bucket(5, year), 1), charge(t, "shared", bucket(12, year), 1)
			all = append(all, requestOf(own, shared))
		}
		s.Ask(t.Context(), all...)
		admitted := 0
		for _, r := range all {
			if !limit.Refuses(r.Charges, r.Decisions) {
				admitted++
			} else if r.Decisions[0].Charged != 0 {
				t.Errorf("a refused request was charged: %+v", r.Decisions)
			}
		}
		if admitted != 12 {
			t.Errorf("%d requests were admitted, want 12", admitted)
		}
	})
}
