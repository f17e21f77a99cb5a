package store

import (
	"fmt"
	"testing"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestACounterWithAForeignValueHeals: its request is undecided, it is deleted once, and counts again. What shares its
// requests stays.
func TestACounterWithAForeignValueHeals(t *testing.T) {
	server := servers.StartRedis(t)
	for name, foreign := range map[string][]string{
		"a list": {"RPUSH", "x"}, "a hash": {"HSET", "f", "x"}, "garbage": {"SET", "garbage"}, "bytes": {"SET", "\xff\x00x"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, RedisConfig{Main: at(server.Addr)})
			good, bad := charge(t, "k", bucket(10, year), 1), charge(t, "k", bucket(10, year), 1)
			bad.Key += ":bad"
			spend(r, good)
			server.Do(t, append([]string{foreign[0], bad.Key}, foreign[1:]...)...)
			d := spend(r, good, bad)
			if d[0].Reason != limit.ReasonBeside || d[1].Reason != limit.ReasonForeign || d[1].Unknown {
				t.Fatalf("decisions %+v, want both undecided because of a foreign value", d)
			}
			servers.Await(t, "a decision", func() error {
				if d := spend(r, good, bad); d[1].Outcome != limit.Allowed {
					return fmt.Errorf("%+v", d)
				}
				return nil
			})
			awaitHealed(t, r)
			want(t, "after", spend(r, good)[0], limit.Allowed, 1, 7)
		})
	}
}

// awaitHealed waits until one counter is healed.
func awaitHealed(t *testing.T, r *Redis) {
	t.Helper()
	servers.Await(t, "one healed counter", func() error { return notYet(r.Stats().Calls.Healed == 1) })
}

// TestAPenaltyWithAForeignValueHeals: its refusals do not count until then.
func TestAPenaltyWithAForeignValueHeals(t *testing.T) {
	server := servers.StartRedis(t)
	for i := range 2 {
		t.Run(fmt.Sprint("list ", i), func(t *testing.T) {
			r := open(t, RedisConfig{Main: at(server.Addr)})
			c := penalized(charge(t, "k", bucket(1, year), 2), strict(1))
			server.Do(t, "SET", limit.PunishKeys(&c)[i], "garbage")
			servers.Await(t, "a cool-down", func() error { return notYet(spend(r, c)[0].Penalized) })
			awaitHealed(t, r)
		})
	}
}
