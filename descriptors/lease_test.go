package descriptors_test

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// TestReservationsAreNotLeased: what a post-paid request takes in advance is charged in the store, by rules and by
// trees.
func TestReservationsAreNotLeased(t *testing.T) {
	limits := []descriptors.Limit{{
		Limit: limit.Limit{Algorithm: limit.TokenBucket, Count: 1000, Burst: 1000, Window: time.Second},
		Unit:  descriptors.Second, Multiplier: 1,
	}}
	for reserve, leased := range map[int64]bool{0: true, 100: false} {
		postPaid := reserve > 0
		set, problems := descriptors.Compile([]descriptors.Domain{{
			Name: "shop",
			Rules: []descriptors.Rule{{Name: "llm", Scope: descriptors.ScopeTenant, HasScope: true, Limits: limits,
				PostPaid: postPaid, Reserve: reserve}},
			Tree: []descriptors.Node{{Key: "model", Limits: limits, PostPaid: postPaid, Reserve: reserve}},
		}}, descriptors.Options{})
		if set == nil {
			t.Fatalf("the test's own rules do not compile: %v", problems)
		}
		req := descriptors.Request{Domain: "shop"}
		for _, key := range []string{"tenant", "model"} {
			req.Descriptors = append(req.Descriptors,
				descriptors.Descriptor{Entries: []descriptors.Entry{{Key: key, Value: "a"}}, HitsGiven: postPaid})
		}
		var m descriptors.Match
		set.Match(&req, &m)
		if len(m.Charges) != 2 {
			t.Fatalf("reserve %d: %d charges, want 2", reserve, len(m.Charges))
		}
		for _, c := range m.Charges {
			if c.Op != limit.Spend || c.Lease > 0 != leased {
				t.Errorf("reserve %d: %s takes by operation %d with a lease of %d, want a spend, leased %v", reserve,
					c.Key, c.Op, c.Lease, leased)
			}
		}
	}
}
