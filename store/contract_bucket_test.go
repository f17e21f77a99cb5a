package store

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

func TestContractOfADebt(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		debit := op(charge(t, "k", bucket(10, year), 15), limit.Debit)
		want(t, "debit 15 of 10", spend(s, debit)[0], limit.Allowed, 15, 0)
		debit.Cost = limit.MaxCost
		want(t, "debit 2^53 of -5", spend(s, debit)[0], limit.Allowed, 5, 0)
		want(t, "debit 2^53 of -10", spend(s, debit)[0], limit.Allowed, 0, 0)
		refund := op(charge(t, "k", bucket(10, year), 11), limit.Refund)
		want(t, "refund 11 of -10", spend(s, refund)[0], limit.Allowed, -11, 1)
	})
}

func TestContractOfTimes(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		l := bucket(10, 10*time.Hour)
		d := spend(s, charge(t, "k", l, 10))[0]
		wantAbout(t, "reset after the last token", d.ResetAfter, 10*time.Hour)
		wantAbout(t, "retry after on an admitted charge", d.RetryAfter, 0)
		d = spend(s, charge(t, "k", l, 3))[0]
		wantAbout(t, "retry after of cost 3", d.RetryAfter, 3*time.Hour)
		wantAbout(t, "reset after on a refusal", d.ResetAfter, 10*time.Hour)
		d = spend(s, charge(t, "k", l, 11))[0]
		wantAbout(t, "retry after of a cost that cannot pass", d.RetryAfter, 10*time.Hour)
	})
}

func TestContractOfLargeNumbers(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		l := bucket(limit.MaxCount, year)
		want(t, "all of the largest bucket", spend(s, charge(t, "bucket", l, limit.MaxCount))[0], limit.Allowed, limit.MaxCount, 0)
		l.Algorithm = limit.FixedWindow
		all := charge(t, "fixed", l, limit.MaxCount)
		want(t, "all of the largest window", spend(s, all)[0], limit.Allowed, limit.MaxCount, 0)
		all.Cost = limit.MaxCost
		want(t, "refund of 2^53", spend(s, op(all, limit.Refund))[0], limit.Allowed, -limit.MaxCount, limit.MaxCount)
		want(t, "2^53 of a tree takes what is left", spend(s, each(all))[0], limit.Refused, limit.MaxCount, 0)
	})
}

func TestContractOfAThrottle(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		const step = 19 * time.Second
		c := charge(t, "k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: step, Burst: 1}, 1)
		c.MaxWait = 3*step + time.Second
		want(t, "the first", spend(s, c)[0], limit.Allowed, 1, 0)
		for i := range time.Duration(3) {
			d := spend(s, c)[0]
			want(t, "one that waits", d, limit.Allowed, 1, 0)
			wantDue(t, d.Wait, (i+1)*step)
		}
		d := spend(s, c)[0]
		want(t, "one too many", d, limit.Refused, 0, 0)
		wantDue(t, d.RetryAfter, 4*step)
		hasty := c
		hasty.MaxWait = 0
		want(t, "one that does not wait", spend(s, hasty)[0], limit.Refused, 0, 0)
		want(t, "a cancelled wait", spend(s, op(c, limit.Refund))[0], limit.Allowed, -1, 0)
		d = spend(s, c)[0]
		want(t, "the next one", d, limit.Allowed, 1, 0)
		wantDue(t, d.Wait, 3*step)
		c.Cost = 2
		want(t, "a cost above the burst", spend(s, c)[0], limit.Refused, 0, 0)
	})
}

// wantDue allows for the time a test takes.
func wantDue(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-15*time.Second {
		t.Fatalf("due after %v, want %v", got, want)
	}
}

func TestContractOfAThrottleInARefusedRequest(t *testing.T) {
	eachStore(t, func(t *testing.T, s Counter) {
		waits, spent := charge(t, "waits", bucket(5, time.Minute), 5), charge(t, "spent", bucket(1, year), 2)
		waits.MaxWait = time.Minute
		spend(s, waits)
		for range 3 {
			d := spend(s, waits, spent)
			want(t, "the throttle", d[0], limit.Allowed, 0, 0)
			if d[0].Wait != 0 || d[1].Outcome != limit.Refused {
				t.Fatalf("%+v, want nothing to wait for and a refusal", d)
			}
		}
		d := spend(s, waits)[0]
		want(t, "alone", d, limit.Allowed, 5, 0)
		if d.Wait <= 0 || d.Wait > time.Minute {
			t.Fatalf("due after %v, want at most a minute", d.Wait)
		}
	})
}
