package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// TestTheStoreGetsBackWhatAClosedRuleRefused, and no caller waits for it: it may have used up its patience already.
func TestTheStoreGetsBackWhatAClosedRuleRefused(t *testing.T) {
	inSidecars(t, 1, pair(descriptors.FailClosed), func(t *testing.T, f *sidecars) {
		f.send(0, request("joe", "acme", 1))
		f.lose(of("acme"))
		f.delayRefunds(50 * time.Millisecond)
		v, took := f.within(time.Minute, request("joe", "acme", 1))
		want(t, "closed", v, true)
		if d := decisionOn(v, "joe"); d.Charged != 0 || d.Remaining != 9 || took != 0 {
			t.Errorf("%d charged and %d left after %v, want 0 and 9 at once", d.Charged, d.Remaining, took)
		}
		pass(time.Second)
		if got := f.used(request("joe", "acme", 1)); !slices.Equal(got, []int64{1, 1}) {
			t.Fatalf("used at the store: %v, want 1 each, by the request before", got)
		}
	})
}

func TestTheStoreGetsBackWhatTheShareRefused(t *testing.T) {
	inSidecars(t, 1, pair(descriptors.FailLocal), func(t *testing.T, f *sidecars) {
		f.lose(of("acme"))
		for i := range 6 {
			v := f.send(0, request("joe", "acme", 1))
			want(t, "local", v, i >= 4)
			synctest.Wait()
		}
		if got := f.usedBy("joe"); got != 4 {
			t.Fatalf("%d used at the store by the user, want 4, as many as were admitted", got)
		}
	})
}

// TestTheNextWindowGetsNothingBack: tokens that were taken in one window and arrive in the next are not given back.
func TestTheNextWindowGetsNothingBack(t *testing.T) {
	d := pair(descriptors.FailClosed)
	d.Rules[0].Limits[0].Limit = limit.Limit{Algorithm: limit.FixedWindow, Count: 10, Window: time.Minute}
	inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
		f.lose(of("acme"))
		f.delayRefunds(2 * time.Second)
		toWindow()
		pass(59 * time.Second)
		want(t, "closed, at the end of a window", f.send(0, request("joe", "acme", 5)), true)
		pass(1500 * time.Millisecond)
		want(t, "all of the next window", f.send(0, request("joe", "", 10)), false)
		pass(time.Second)
		if got := f.usedBy("joe"); got != 10 {
			t.Fatalf("%d of the next window are used, want 10: it got back what was taken from the one before", got)
		}
	})
}

// TestTreesStayCharged: a descriptor's charge counts on a refused request, too.
func TestTreesStayCharged(t *testing.T) {
	closed := leaf("tenant", "", 5)
	closed.OnFailure = descriptors.FailClosed
	d := tree(leaf("user", "", 5), closed)
	inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
		f.lose(of("acme"))
		want(t, "closed", f.send(0, asking([]string{"user", "joe"}, []string{"tenant", "acme"})), true)
		if got := f.usedBy("joe"); got != 1 {
			t.Fatalf("%d used at the store, want 1", got)
		}
	})
}

// TestAQuotaWithRoomElsewhere: a quota that is spent locally refuses nothing while another has room at the store, and
// the rules of the admitted request are charged.
func TestAQuotaWithRoomElsewhere(t *testing.T) {
	x, y := leaf("x", "", 1), leaf("y", "", 9)
	x.Quota, y.Quota = true, true
	d := tree(x, y)
	d.Rules = []descriptors.Rule{bucket("user", descriptors.ScopeUser, 10)}
	inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
		f.lose(func(c limit.Charge) bool { return of("joe")(c) || of("xx")(c) })
		req := asking([]string{"user", "joe"}, []string{"x", "xx"}, []string{"y", "yy"})
		for i := range int64(4) {
			v := f.send(0, req)
			want(t, "a quota has room", v, false)
			if d := decisionOn(v, "joe"); d.Charged != 1 || d.Remaining != 9-i {
				t.Fatalf("request %d: the rule charged %d and has %d left, want 1 and %d", i, d.Charged, d.Remaining,
					9-i)
			}
		}
	})
}

// TestAWaitThatIsCancelledIsUndoneWhereItWasCharged: one throttled limit at the store, one on the share.
func TestAWaitThatIsCancelledIsUndoneWhereItWasCharged(t *testing.T) {
	d := pair(descriptors.FailLocal)
	for i := range d.Rules {
		d.Rules[i].Action, d.Rules[i].MaxDelay = descriptors.Throttle, time.Minute
		d.Rules[i].Limits[0].Limit = limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Burst: 1,
			Window: 30 * time.Second}
	}
	inSidecars(t, 1, d, func(t *testing.T, f *sidecars) {
		f.lose(of("acme"))
		f.send(0, request("joe", "acme", 1))
		ctx, cancel := context.WithCancel(t.Context())
		var held sync.WaitGroup
		held.Go(func() {
			v, _ := f.decide(ctx, request("joe", "acme", 1))
			want(t, "cancelled", v, true)
		})
		synctest.Wait()
		cancel()
		held.Wait()
		synctest.Wait()
		v := f.send(0, request("joe", "acme", 1))
		if v.Refused || v.Waited != 30*time.Second || v.Degraded == "" {
			t.Fatalf("refused %v after %v, want admitted after 30 s: the cancelled request took nothing", v.Refused,
				v.Waited)
		}
	})
}
