//go:build full

package load

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// topology is a way in which servers stand together.
type topology struct {
	name  string
	start func(t *testing.T) (env []string) // starts the servers and returns the sidecar's settings
	more  string                            // limits beside the one that is counted; they never refuse
}

var topologies = []topology{
	{name: "single", start: func(t *testing.T) []string {
		return []string{"REDIS_URL=" + servers.StartRedis(t).Addr}
	}},
	{name: "socket", start: func(t *testing.T) []string {
		return []string{"REDIS_URL=" + servers.StartRedis(t).Socket}
	}},
	{name: "TLS", start: func(t *testing.T) []string {
		cert, key := servers.Certificate(t)
		redis := servers.StartRedis(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert,
			"--tls-auth-clients", "no")
		return []string{"REDIS_URL=rediss://" + redis.Addr, "REDIS_TLS_CACERT=" + cert}
	}},
	{name: "sentinel", start: func(t *testing.T) []string {
		s := servers.StartSentinels(t)
		return []string{"REDIS_TYPE=sentinel", "REDIS_URL=" + s.Master + "," + strings.Join(s.Addrs(), ",")}
	}},
	{name: "cluster", start: func(t *testing.T) []string {
		return []string{"REDIS_TYPE=cluster", "REDIS_URL=" + strings.Join(servers.StartCluster(t).Addrs(), ",")}
	}},
	{name: "ring", start: func(t *testing.T) []string {
		return []string{"REDIS_TYPE=ring", "REDIS_URL=" + servers.StartRedis(t).Addr + "," + servers.StartRedis(t).Addr}
	}},
	{name: "second Redis", start: func(t *testing.T) []string {
		return []string{"REDIS_URL=" + servers.StartRedis(t).Addr, "REDIS_PERSECOND=true", "REDIS_PERSECOND_URL=" +
			servers.StartRedis(t).Addr}
	}, more: ", { count: 1_000_000, per: 1s, name: second }"},
}

// opening is how early callers come.
type opening struct {
	name string
	come func(t testing.TB, f sidecars, addresses []string)
}

var openings = []opening{
	{"when it is ready", func(t testing.TB, f sidecars, _ []string) {
		awaitEach(t, f, func(i int) error { return f[i].Ready() })
	}},
	{"when the port accepts", func(t testing.TB, f sidecars, addresses []string) {
		awaitEach(t, f, func(i int) error {
			conn, err := net.Dial("tcp", addresses[i])
			if err == nil {
				conn.Close()
			}
			return err
		})
	}},
}

// awaitEach calls try for all sidecars without a pause until it has succeeded for each.
func awaitEach(t testing.TB, f sidecars, try func(i int) error) {
	t.Helper()
	for end := time.Now().Add(deadline); ; {
		var all error
		for i := range f {
			all = errors.Join(all, try(i))
		}
		if all == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the sidecars are not there after %v: %v", deadline, all)
		}
	}
}

// wave is how many callers come at once, and for how many users: those of several users ask several servers.
type wave struct{ callers, users int }

var waves = []wave{{64, 1}, {256, 4}}

// A burst on sidecars that have just been started never gets more than the limit, with each algorithm and store.
func TestABurstOnAColdStartIsExact(t *testing.T) {
	for _, place := range topologies {
		t.Run(place.name, func(t *testing.T) {
			env := place.start(t)
			for _, algorithm := range algorithms {
				for _, w := range waves {
					for _, o := range openings {
						t.Run(fmt.Sprintf("%s %d %s", algorithm, w.callers, o.name), func(t *testing.T) {
							servers.Tries(t, func(t testing.TB) { coldStart(t, env, place.more, algorithm, w, o) })
						})
					}
				}
			}
		})
	}
}

func coldStart(t testing.TB, env []string, more, algorithm string, w wave, o opening) {
	const limit = 50
	rules := strings.Replace(perUser(limit, algorithm), "}]", "}"+more+"]", 1)
	var addresses []string
	f := launch(t, rules, func(int) []string {
		addresses = append(addresses, servers.FreeAddr(t))
		_, port, _ := net.SplitHostPort(addresses[len(addresses)-1])
		return append([]string{"GRPC_PORT=" + port}, env...)
	})
	var callers []*caller
	for i := range w.callers {
		callers = append(callers, dial(t, addresses[i%len(addresses)]))
	}
	name := strings.ReplaceAll(t.Name(), " ", "_")
	o.come(t, f, addresses)
	got := together(callers, func(n int, c *caller) { c.ask(fmt.Sprintf("%s-%d", name, n/len(f)%w.users)) })
	f.ready(t)
	within(t, got, limit, limit/4) // a lease is a quarter of what is left at most
	f.byRedis(t, got)
}
