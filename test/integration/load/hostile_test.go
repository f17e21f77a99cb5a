//go:build full

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// manifestMemory is the memory limit of the sidecar in the manifests of examples/istio.
const manifestMemory = 256 << 20

// hostileRules count by values that clients choose: one limit admits, the other refuses at once.
const hostileRules = `
domain: hostile
descriptors:
  - key: path
    rate_limit: {unit: day, requests_per_unit: 5}
    descriptors:
      - {key: user, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: spent, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: login, rate_limit: {unit: minute, requests_per_unit: 5}}
`

// togetherRules charge all descriptors of a request or none.
const togetherRules = `
domain: together
charge_denied: false
descriptors:
  - {key: path, rate_limit: {unit: day, requests_per_unit: 5}}
`

// startHostile starts a sidecar with the memory of the manifests.
func startHostile(t *testing.T, redis *servers.Redis) (*servers.Sidecar, *caller) {
	t.Helper()
	s := servers.StartSidecarWithin(t, manifestMemory, hostileEnv(t, redis)...)
	c := dial(t, s.GRPC)
	c.connect(t)
	return s, c
}

// hostileEnv writes the rules and returns the settings of a sidecar that has them.
func hostileEnv(t *testing.T, redis *servers.Redis) []string {
	t.Helper()
	folder := t.TempDir()
	for name, rules := range map[string]string{"hostile.yaml": hostileRules, "together.yaml": togetherRules} {
		err := os.WriteFile(filepath.Join(folder, name), []byte(rules), 0o600)
		if err != nil {
			t.Fatalf("write the rules: %v", err)
		}
	}
	return []string{"RULES=" + folder, "REDIS_URL=" + redis.Addr, "STORE_SILENCE=5s", "STORE_PATIENCE=30s"}
}

// wantWithin fails the test unless the sidecar lives and never had more memory than the manifests give it.
func wantWithin(t *testing.T, s *servers.Sidecar, when string) {
	t.Helper()
	most, err := s.PeakMemory()
	if err != nil {
		t.Fatalf("%s: %v\n%s", when, err, s.Output())
	}
	t.Logf("%s: at most %d MiB resident", when, most>>20)
	if most >= manifestMemory {
		t.Errorf("%s: the sidecar had %d MiB resident, want less than %d", when, most>>20, manifestMemory>>20)
	}
}

// hostile makes values that no other has, of every length up to 300 bytes: parts of keys are kept as they are up to 64
// bytes, three times as long where their bytes are escaped, and hashed above.
type hostile struct{ *rand.Rand }

func (h hostile) value() string {
	const escaped = "{}:|%#*~"
	size := 1 + h.IntN(300)
	if h.IntN(2) == 0 {
		size = 1 + h.IntN(64)
	}
	b := strconv.AppendUint(nil, h.Uint64(), 36)
	for len(b) < size {
		b = append(b, escaped[h.IntN(len(escaped))])
	}
	return string(b)
}

func (h hostile) descriptor(key string) *ratelimitcommon.RateLimitDescriptor {
	d := &ratelimitcommon.RateLimitDescriptor{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{
		{Key: key, Value: h.value()}}}
	if key == "path" && h.IntN(2) == 0 {
		d.Entries = append(d.Entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: "user", Value: h.value()})
	}
	return d
}

// flood sends so many descriptors with new values, from a few clients.
func (c *caller) flood(t *testing.T, keys int, names ...string) {
	t.Helper()
	const clients, each = 4, 100
	var all sync.WaitGroup
	for n := range clients {
		h := hostile{rand.New(rand.NewPCG(uint64(n), uint64(keys)))}
		all.Go(func() {
			for range keys / clients / each {
				req := &ratelimitv3.RateLimitRequest{Domain: "hostile"}
				for i := range each {
					req.Descriptors = append(req.Descriptors, h.descriptor(names[i%len(names)]))
				}
				_, err := ratelimitv3.NewRateLimitServiceClient(c.conn).ShouldRateLimit(context.Background(), req)
				if err != nil {
					t.Errorf("a call of the flood failed: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// login asks once for one user's logins, and returns whether it is admitted.
func (c *caller) login(t *testing.T, user string) bool {
	t.Helper()
	d := &ratelimitcommon.RateLimitDescriptor{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{
		{Key: "login", Value: user}}}
	req := &ratelimitv3.RateLimitRequest{Domain: "hostile", Descriptors: []*ratelimitcommon.RateLimitDescriptor{d}}
	got, err := ratelimitv3.NewRateLimitServiceClient(c.conn).ShouldRateLimit(context.Background(), req)
	if err != nil {
		t.Fatalf("ask: %v", err)
	}
	return got.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
}

// TestAMillionHostileKeys: what clients choose fills no more memory than there is, whichever cache it goes to. What is
// forgotten for that is counted, and the limits of others hold.
func TestAMillionHostileKeys(t *testing.T) {
	redis := servers.StartRedis(t)
	s, c := startHostile(t, redis)
	c.flood(t, 1_000_000, "path")
	wantWithin(t, s, "after a million keys that Redis counts")
	c.flood(t, 100_000, "spent")
	wantWithin(t, s, "after 100,000 refused keys")
	redis.Kill(t)
	c.flood(t, 300_000, "path")
	wantWithin(t, s, "after 300,000 keys without Redis")
	m := must.Get(servers.Scrape(s.Debug))(t)
	for _, name := range []string{"spillway_memory_evicted_total", "spillway_denial_cache_drops_total"} {
		if m.Sum(name) == 0 {
			t.Errorf("%s is 0 after the flood", name)
		}
	}
	for _, name := range []string{"spillway_memory_keys", "spillway_memory_bytes", "spillway_memory_evicted_total",
		"spillway_denial_cache_entries", "spillway_denial_cache_bytes"} {
		t.Logf("%s %d", name, m.Sum(name))
	}
	admitted := 0
	for range 100 {
		if c.login(t, "alice") {
			admitted++
		}
	}
	if admitted < 1 || admitted > 10 { // 5 a minute, and a minute may end meanwhile
		t.Errorf("%d of 100 logins were admitted beside the flood, want 5", admitted)
	}
}

// TestHostileKeysWithoutACgroup: GOMEMLIMIT bounds the caches without a cgroup.
func TestHostileKeysWithoutACgroup(t *testing.T) {
	const limit = manifestMemory / 5 * 4
	redis := servers.StartRedis(t)
	s := servers.StartSidecar(t, append(hostileEnv(t, redis), fmt.Sprintf("GOMEMLIMIT=%d", limit))...)
	c := dial(t, s.GRPC)
	c.connect(t)
	redis.Kill(t)
	c.flood(t, 300_000, "path")
	wantWithin(t, s, "after 300,000 keys without Redis")
	m := must.Get(servers.Scrape(s.Debug))(t)
	if bytes := m.Sum("spillway_memory_bytes"); bytes > limit/5 || m.Sum("spillway_memory_evicted_total") == 0 {
		t.Errorf("the counters take %d bytes, and %d were evicted; want at most a fifth of %d", bytes,
			m.Sum("spillway_memory_evicted_total"), limit)
	}
}
