package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// twoStores is a store with one server for limits of up to a second and one for all others.
func twoStores(t *testing.T, budget time.Duration) (r *Redis, main, second *servers.Redis) {
	t.Helper()
	main, second = servers.StartRedis(t), servers.StartRedis(t)
	r = openRedis(t, RedisConfig{
		Servers: fleet.Servers{Addresses: []string{main.Addr}}, PerSecond: &fleet.Servers{Addresses: []string{second.Addr}}, Budget: budget,
	})
	return r, main, second
}

// keysOf are the keys that a server holds.
func keysOf(t *testing.T, server *servers.Redis) []string {
	t.Helper()
	var keys []string
	for _, key := range server.Do(t, "KEYS", "*").([]any) {
		keys = append(keys, fmt.Sprint(key))
	}
	slices.Sort(keys)
	return keys
}

func TestLimitsPerSecondLiveOnTheSecondServer(t *testing.T) {
	r, main, second := twoStores(t, 0)
	var short, long []string
	for window, keys := range map[time.Duration]*[]string{
		time.Millisecond: &short, time.Second: &short, time.Second + time.Microsecond: &long, time.Minute: &long, year: &long,
	} {
		c := charge(t, window.String(), limit.Limit{Algorithm: limit.SlidingLog, Count: 10, Window: window}, 1)
		if window < time.Minute { // would be gone before the test looks
			c.Limit = limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Burst: 1_000_000, Window: window}
			c.Cost = 1_000_000
		}
		spend(r, c)
		*keys = append(*keys, c.Key)
	}
	slices.Sort(short)
	slices.Sort(long)
	if got := keysOf(t, second); !slices.Equal(got, short) {
		t.Errorf("the second server has %q, want %q", got, short)
	}
	if got := keysOf(t, main); !slices.Equal(got, long) {
		t.Errorf("the main server has %q, want %q", got, long)
	}
}

func TestARequestOverTwoStoresIsAllOrNothing(t *testing.T) {
	r, _, _ := twoStores(t, 0)
	// A bucket of a second that takes hours to fill, so that nothing comes back meanwhile.
	short := limit.Limit{Algorithm: limit.TokenBucket, Count: 1, Burst: 100_000, Window: time.Second}
	long := bucket(3, year)
	request := []limit.Charge{charge(t, "short", short, 20_000), charge(t, "long", long, 1)}
	for range 3 {
		for _, d := range spend(r, request...) {
			if d.Outcome != limit.Allowed || d.Charged == 0 {
				t.Fatalf("decision %+v while both have room", d)
			}
		}
	}
	d := spend(r, request...)
	want(t, "the long limit refuses", d[1], limit.Refused, 0, 0)
	if d[0].Outcome != limit.Allowed || d[0].Charged != 0 || d[0].Remaining < 40_000 || d[0].Remaining > 40_100 {
		t.Errorf("the short limit: %+v, want 40,000 left", d[0])
	}
	request[0].Cost, request[1] = 50_000, charge(t, "another", long, 1)
	d = spend(r, request...)
	if d[0].Outcome != limit.Refused || d[0].Charged != 0 {
		t.Errorf("the short limit: %+v, want refused", d[0])
	}
	want(t, "the long limit takes nothing", d[1], limit.Allowed, 0, 3)
	wantLeft(t, r, request[1], 3)
}

func TestALostSecondStoreTakesItsOwnLimitsOnly(t *testing.T) {
	r, main, second := twoStores(t, steady)
	short := charge(t, "short", limit.Limit{Algorithm: limit.FixedWindow, Count: 1_000_000, Window: time.Second}, 1)
	long := charge(t, "long", bucket(1000, year), 1)
	awaitAllowed(t, r, short)
	awaitAllowed(t, r, long)
	before := usage(r, long).Remaining
	second.Kill(t)
	for i := range int64(20) {
		d := spend(r, short, long)
		if d[0].Outcome != limit.Undecided {
			t.Fatalf("the short limit: %+v, want undecided", d[0])
		}
		want(t, "the long limit", d[1], limit.Allowed, 1, before-i-1)
	}
	if got := keysOf(t, main); len(got) != 1 {
		t.Errorf("keys %q on the main server, want only its own", got)
	}
	servers.Await(t, "a ping that names the lost server", func() error {
		if got, want := r.Ping(t.Context()), "per-second "+second.Addr+" "+fleet.ReasonDial; got != want {
			return fmt.Errorf("ping says %q, want %q", got, want)
		}
		return nil
	})
	second.Start(t)
	awaitAllowed(t, r, short)
}
