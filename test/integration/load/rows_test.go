//go:build full

package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// A burst on sidecars that have been idle since their start admits the limit, not more, not less.
func TestABurstOnIdleSidecarsIsExact(t *testing.T) {
	const limit = 50
	conditions(t, func(t testing.TB, redis *servers.Redis) {
		for round := range 10 {
			f := begin(t, redis, perUser(limit, "token_bucket"))
			for _, size := range []int{64, 256} {
				user := fmt.Sprintf("burst-%d-%d", round, size)
				got := together(f.callers(t, size), func(_ int, c *caller) { c.ask(user) })
				exactly(t, got, limit)
				f.byRedis(t, got)
			}
		}
	})
}

const pressing = 64 // callers that ask one call after the other

// One key that is asked as fast as clients can admits its limit.
func TestOneKeyAsFastAsClientsCan(t *testing.T) {
	const limit, beyond = 15_000, 3_000
	conditions(t, func(t testing.TB, redis *servers.Redis) {
		f := begin(t, redis, perUser(limit, "token_bucket"))
		var asked atomic.Int64
		got := press(f.callers(t, pressing), func() (string, bool) { return "hot", asked.Add(1) <= limit+beyond })
		exactly(t, got, limit)
		f.byRedis(t, got)
	})
}

const (
	manyKeys = 100_000
	perKey   = 2 // a limit that some of the keys reach
)

// manyUsers picks users evenly among many, the same ones in every run. It is safe for concurrent use.
func manyUsers() func() string {
	var n atomic.Uint64
	return func() string { return "u" + strconv.Itoa(rand.New(rand.NewPCG(1, n.Add(1))).IntN(manyKeys)) }
}

// Many keys that are asked as fast as clients can are all counted in Redis.
func TestManyKeysAsFastAsClientsCan(t *testing.T) {
	conditions(t, func(t testing.TB, redis *servers.Redis) {
		f := begin(t, redis, perUser(perKey, "token_bucket"))
		var asked atomic.Int64
		most, pick := int64(200_000), manyUsers()
		got := press(f.callers(t, pressing), func() (string, bool) { return pick(), asked.Add(1) <= most })
		exactly(t, got, perKey)
		f.byRedis(t, got)
		if n, _ := redis.Do(t, "DBSIZE").(int64); n < int64(len(got.asked)) {
			t.Errorf("Redis has %d keys after %d users asked", n, len(got.asked))
		}
	})
}
