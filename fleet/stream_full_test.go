//go:build full

package fleet

import (
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestADistantServerIsNotSilent: one that is farther away than the bound on silence works without a setting.
func TestADistantServerIsNotSilent(t *testing.T) {
	servers.Tries(t, func(t testing.TB) {
		server := servers.StartRedis(t)
		p := servers.StartProxy(t, server.Addr)
		p.Set(servers.Fault{Mode: servers.Latency, Delay: 12 * time.Millisecond})
		_, n := open(t, Config{Servers: at(p.Addr)})
		for i := range 20 {
			if err := n.Do(t.Context(), incr("k"), time.Hour); err != nil {
				t.Fatalf("call %d to a server that is 12 ms away: %v", i, err)
			}
		}
	})
}
