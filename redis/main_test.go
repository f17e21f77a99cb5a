package redis_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-mesh/spillway/redis"
)

// TestMain wants the goroutines of every connection to end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count adds to counters: one argument for each key, and a reply of one integer for each.
var count = redis.NewScript(`local r = {7}
for i, key in ipairs(KEYS) do r[i + 1] = redis.call('INCRBY', key, ARGV[i + 1]) end
return r`, false)

// open connects to a server, and closes the client when the test ends.
func open(t testing.TB, c redis.Config) *redis.Client {
	t.Helper()
	client := redis.New(c)
	t.Cleanup(client.Close)
	return client
}

// at is the configuration of servers of a kind, which have all the time that a busy machine needs.
func at(kind redis.Kind, addresses ...string) redis.Config {
	const patient = 20 * time.Second
	return redis.Config{Servers: redis.Servers{Kind: kind, Addresses: addresses, DialTimeout: patient},
		Silence: patient}
}

// add is a request that adds one to a key.
func add(key string) *redis.Pending {
	return &redis.Pending{Script: count, Keys: []string{key}, Arguments: []string{"1"}, Charges: 1, Replies: 1}
}

// await waits for requests.
func await(t testing.TB, requests ...*redis.Pending) {
	t.Helper()
	late := time.After(20 * time.Second)
	for _, p := range requests {
		select {
		case <-p.Done():
		case <-late:
			t.Fatal("a request was never over")
		}
	}
}

// do sends a request and returns its reply.
func do(t testing.TB, c *redis.Client, p *redis.Pending) ([]int64, error) {
	t.Helper()
	c.Server(p.Keys[0]).Do(p)
	await(t, p)
	return p.Reply, p.Err
}

// statsOf is what a client has counted so far.
func statsOf(c *redis.Client) (all redis.Stats) {
	all.Add(c)
	return all
}

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
