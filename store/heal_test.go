package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestACounterWithAForeignValueHeals: it is undecided for a while, then deleted, and counts again. What shared its
// calls stays.
func TestACounterWithAForeignValueHeals(t *testing.T) {
	server := servers.StartRedis(t)
	penalty := &limit.Penalty{Threshold: 5, Window: time.Minute, CoolDown: time.Minute, Multipliers: []int64{1}}
	for name, foreign := range map[string][]string{
		"a list": {"RPUSH", "x"}, "a hash": {"HSET", "f", "x"}, "garbage": {"SET", "garbage"},
		"twelve bytes": {"SET", "\xffnot a stat"},
	} {
		for _, atPenalty := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", penalty ", atPenalty), func(t *testing.T) {
				var ahead atomic.Int64
				r := openRedis(t, RedisConfig{
					Servers: fleet.Servers{Addresses: []string{server.Addr}},
					Now:     func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
				})
				r.Ready(t.Context())
				good, bad := charge(t, "good", bucket(10, time.Hour), 1), charge(t, "good", bucket(10, time.Hour), 1)
				bad.Key += ":bad"
				bad.Penalty, bad.PenaltyKey = penalty, bad.Key+":penalty"
				at := bad.Key
				if atPenalty {
					at = bad.PenaltyKey
				}
				want(t, "before", spend(r, good)[0], limit.Allowed, 1, 9)
				server.Do(t, append([]string{foreign[0], at}, foreign[1:]...)...)
				for range 3 {
					if d := spend(r, good, bad); d[1].Reason != fleet.ReasonWrong {
						t.Fatalf("decisions %+v, want a foreign value", d)
					}
				}
				ahead.Add(int64(healAfter))
				servers.Await(t, "a decision", func() error {
					if d := spend(r, good, bad); d[1].Outcome != limit.Allowed {
						return fmt.Errorf("%+v", d)
					}
					return nil
				})
				if got := r.Stats().Healed; got != 1 {
					t.Errorf("%d counters were healed, want 1", got)
				}
				want(t, "after", spend(r, good)[0], limit.Allowed, 1, 7)
			})
		}
	}
}
