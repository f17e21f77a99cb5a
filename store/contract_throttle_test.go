package store

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// wantDue fails the test unless a token is due after this time, less what the test itself took.
func wantDue(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-9*time.Second {
		t.Fatalf("due after %v, want %v", got, want)
	}
}

func TestThrottledChargesQueueUp(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
		c := charge(t, "k", limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Window: 10 * time.Second, Burst: 1}, 1)
		c.MaxWait = 35 * time.Second
		want(t, "the first", spend(s, c)[0], limit.Allowed, 1, 0)
		for i := range 3 {
			d := spend(s, c)[0]
			want(t, "one that waits", d, limit.Allowed, 1, 0)
			wantDue(t, d.Wait, time.Duration(i+1)*10*time.Second)
		}
		for range 3 {
			d := spend(s, c)[0]
			want(t, "one too many", d, limit.Refused, 0, 0)
			wantDue(t, d.RetryAfter, 40*time.Second)
		}
		hasty := c
		hasty.MaxWait = 0
		want(t, "one that does not wait", spend(s, hasty)[0], limit.Refused, 0, 0)
		refund := c
		refund.Op = limit.Refund
		want(t, "a cancelled wait", spend(s, refund)[0], limit.Allowed, -1, 0)
		d := spend(s, c)[0]
		want(t, "the next one", d, limit.Allowed, 1, 0)
		wantDue(t, d.Wait, 30*time.Second)
		large := c
		large.Cost = 2
		want(t, "a cost above the burst", spend(s, large)[0], limit.Refused, 0, 0)
	})
}

func TestRefusedRequestReservesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s counter) {
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
		wantDue(t, d.Wait, time.Minute)
	})
}
