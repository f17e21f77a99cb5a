package limit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// What windows.lua does about windows that are there.

// chargeAlike decides two requests that differ in their keys alone in one batch, and returns what each charge got. Their limits are 10 per window.
func chargeAlike(t *testing.T, client *redis.Client, window time.Duration, now int64, keys ...string) []limit.Decision {
	t.Helper()
	charges := func(prefix string) (all []limit.Charge) {
		for _, key := range keys {
			all = append(all, limit.Charge{Key: prefix + key, Limit: of(limit.FixedWindow, 10, window), Cost: 1})
		}
		return all
	}
	calls := []limit.Call{limit.NewCall(charges("one:"), false, now), limit.NewCall(charges("two:"), false, now)}
	var got []limit.Decision
	for i, reply := range runBatch(t, client, calls...) {
		decisions := make([]limit.Decision, len(keys))
		_, err := calls[i].Read(reply, decisions, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, decisions...)
	}
	return got
}

func expectRemaining(t *testing.T, got []limit.Decision, want ...int64) {
	t.Helper()
	var remaining []int64
	for _, d := range got {
		remaining = append(remaining, d.Remaining)
	}
	if fmt.Sprint(remaining) != fmt.Sprint(want) {
		t.Errorf("left is %v, want %v", remaining, want)
	}
}

// inPlace is how many counters the server has changed in place.
func inPlace(client *redis.Client) string {
	for line := range strings.Lines(client.Info(context.Background(), "commandstats").Val()) {
		if _, rest, found := strings.Cut(line, "cmdstat_setrange:calls="); found {
			calls, _, _ := strings.Cut(rest, ",")
			return calls
		}
	}
	return "0"
}

func TestAWindowThatIsThereIsChangedInPlace(t *testing.T) {
	client, ctx := connect(t), context.Background()
	expectRemaining(t, chargeAlike(t, client, time.Hour, future, "a"), 9, 9)
	first, ends := client.MemoryUsage(ctx, "one:a").Val(), client.PExpireTime(ctx, "one:a").Val()
	if got := inPlace(client); got != "0" {
		t.Errorf("%s new windows were changed in place", got)
	}
	expectRemaining(t, chargeAlike(t, client, time.Hour, future+1e6, "a", "b"), 8, 9, 8, 9)
	expectRemaining(t, chargeAlike(t, client, time.Hour, future+2e6, "a", "b"), 7, 8, 7, 8)
	if got := inPlace(client); got != "6" {
		t.Errorf("%s windows were changed in place, want 6", got)
	}
	if got := client.PExpireTime(ctx, "one:a").Val(); got != ends {
		t.Errorf("a window that ended after %v ends after %v", ends, got)
	}
	if got := client.MemoryUsage(ctx, "one:a").Val(); got != first {
		t.Errorf("a counter took %d bytes and takes %d", first, got)
	}
}

// TestALongerWindowGetsItsTimeToLive has windows that begin at the same instant: only the mark tells them apart.
func TestALongerWindowGetsItsTimeToLive(t *testing.T) {
	client, ctx := connect(t), context.Background()
	left := int64(10)
	for _, window := range []time.Duration{time.Second, time.Minute, 24 * time.Hour, 30 * time.Second, time.Minute} {
		for range 2 {
			left--
			expectRemaining(t, chargeAlike(t, client, window, future, "a"), left, left)
			if got := client.PExpireTime(ctx, "one:a").Val() - future*us; got != window+time.Millisecond {
				t.Errorf("a window of %v is kept for %v", window, got)
			}
		}
	}
}

// TestAServerThatRefusesChangesInPlace has a user who may SET and not SETRANGE.
func TestAServerThatRefusesChangesInPlace(t *testing.T) {
	admin, ctx := connect(t), context.Background()
	err := admin.Do(ctx, "ACL", "SETUSER", "narrow", "on", "nopass", "~*", "+@all", "-setrange").Err()
	if err != nil {
		t.Fatal(err)
	}
	options := *admin.Options()
	options.Username, options.Password = "narrow", "x"
	client := redis.NewClient(&options)
	t.Cleanup(func() { client.Close() })
	expectRemaining(t, chargeAlike(t, client, time.Hour, future, "a"), 9, 9)
	expectRemaining(t, chargeAlike(t, client, time.Hour, future, "b", "a"), 9, 8, 9, 8)
	expectRemaining(t, chargeAlike(t, client, time.Hour, future, "b", "a"), 8, 7, 8, 7)
}
