package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// sizes notes how many charges each call had.
type sizes struct {
	mu  sync.Mutex // guards all
	all []int
}

func (s *sizes) trip(_ context.Context, _ string, charges int) func(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, charges)
	return nil
}

// most returns the largest call, and forgets all.
func (s *sizes) most() (most, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		most = max(most, n)
	}
	calls, s.all = len(s.all), nil
	return most, calls
}

// tree is n charges as descriptors of a tree make them, each on a counter of its own.
func tree(t *testing.T, n int, l limit.Limit) []limit.Charge {
	var all []limit.Charge
	for i := range n {
		c := charge(t, fmt.Sprint("tree ", i), l, 1)
		c.Each = true
		all = append(all, c)
	}
	return all
}

// TestManyChargesGoInSeveralCalls: no call has more charges than one may, each counter is charged once, and the rules of the request are
// charged together, unless a tree refuses.
func TestManyChargesGoInSeveralCalls(t *testing.T) {
	ring, _ := startRing(t, 2)
	single := fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}}
	for name, at := range map[string]fleet.Servers{"one server": single, "a ring": ring} {
		t.Run(name, func(t *testing.T) {
			var seen sizes
			r := openRedis(t, RedisConfig{Servers: at, Patience: time.Minute, OnTrip: seen.trip})
			trees := tree(t, 1000, bucket(1, year))
			rule := charge(t, "rule", bucket(5, year), 1)
			all := append([]limit.Charge{rule}, trees...)
			for i, d := range spend(r, all...) {
				if d.Outcome != limit.Allowed || d.Charged != 1 {
					t.Fatalf("charge %d: %+v, want one token taken", i, d)
				}
			}
			if most, calls := seen.most(); most > limit.MaxTogether || calls < 1001/limit.MaxTogether {
				t.Errorf("%d calls with up to %d charges, want at most %d in each", calls, most, limit.MaxTogether)
			}
			r.Forget()
			for i, d := range spend(r, all...)[1:] {
				if d.Outcome != limit.Refused {
					t.Fatalf("tree %d: %+v, want it spent", i, d)
				}
			}
			wantLeft(t, r, rule, 4)
			if most, _ := seen.most(); most > limit.MaxTogether {
				t.Errorf("a refused request was sent in calls of up to %d charges, want at most %d", most, limit.MaxTogether)
			}
		})
	}
}

// TestTooManyTogetherAreUndecided: all or none cannot be had in several calls, so none is sent. Questions go in several calls.
func TestTooManyTogetherAreUndecided(t *testing.T) {
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}}, Patience: time.Minute})
	all := tree(t, limit.MaxTogether+1, bucket(5, year))
	for i := range all {
		all[i].Each = false
	}
	for i, d := range spend(r, all...) {
		if d.Outcome != limit.Undecided || d.Unknown {
			t.Fatalf("charge %d: %+v, want it undecided and not sent", i, d)
		}
	}
	left := make([]limit.Decision, len(all))
	r.Usage(t.Context(), all, left)
	for i, d := range left {
		if d.Outcome != limit.Allowed || d.Remaining != 5 {
			t.Fatalf("question %d: %+v, want 5 left", i, d)
		}
	}
}

// TestManyQuotasRefuseOnlyTogether: quotas in several calls are one request.
func TestManyQuotasRefuseOnlyTogether(t *testing.T) {
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}}, Patience: time.Minute, DenialEntries: -1})
	all := tree(t, 300, bucket(1, year))
	for i := range all {
		all[i].Mode = limit.Quota
	}
	rule := charge(t, "rule", bucket(5, year), 1)
	spend(r, all[1:]...)
	spend(r, append(all, rule)...) // the first has room
	wantLeft(t, r, rule, 4)
	spend(r, append(all, rule)...) // none has room
	wantLeft(t, r, rule, 4)
}

// TestQuotasOfBothKindsRefuseTogether: a quota that is made all or none has room, so quotas that are charged each by itself do not refuse
// the request, though all of them are spent.
func TestQuotasOfBothKindsRefuseTogether(t *testing.T) {
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}}, Patience: time.Minute, DenialEntries: -1})
	all := tree(t, limit.MaxTogether+10, bucket(1, year))
	for i := range all {
		all[i].Mode = limit.Quota
	}
	spend(r, all...)
	open, rule := charge(t, "open", bucket(5, year), 1), charge(t, "rule", bucket(5, year), 1)
	open.Mode = limit.Quota
	got := spend(r, append(all, open, rule)...)
	for _, d := range got[len(all):] {
		if d.Outcome != limit.Allowed || d.Charged != 1 {
			t.Errorf("%+v, want one token taken", d)
		}
	}
}
