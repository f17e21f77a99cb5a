package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// evictionRules have a limit by the day that clients can fill with values of their own, and one by the minute.
const evictionRules = `
domain: shop
rules:
  - { name: per-address, scope: ip, limits: [{ count: 1000, per: 24h }] }
  - { name: login, scope: user, limits: [{ count: 5, per: 1m, algorithm: fixed_window }] }
`

// TestALongLimitDoesNotEvictAShortOne: many clients fill the memory of a sidecar with counters by the day. A limit by
// the minute holds beside them, where the memory is the store and where it replaces a lost Redis.
func TestALongLimitDoesNotEvictAShortOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.yaml")
	must.Do(t, os.WriteFile(file, []byte(evictionRules), 0o600))
	t.Run("memory store", func(t *testing.T) {
		s := servers.StartSidecar(t, "RULES="+file, "MEMORY_MAX_KEYS=1000")
		wantLoginsLimited(t, s, func() {})
	})
	t.Run("fallback", func(t *testing.T) {
		redis := servers.StartRedis(t)
		s := servers.StartSidecar(t, "RULES="+file, "MEMORY_MAX_KEYS=1000", "REDIS_URL="+redis.Addr)
		wantLoginsLimited(t, s, func() { redis.Kill(t) })
	})
}

// wantLoginsLimited floods the sidecar, then lets something happen, and then asks for logins beside more of the flood.
func wantLoginsLimited(t *testing.T, s *servers.Sidecar, then func()) {
	t.Helper()
	n := 0
	flood := func(clients int) {
		for range clients {
			n++
			allowed(t, s, "remote_address", fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255))
		}
	}
	flood(3000)
	then()
	servers.Inside(t, time.Minute, 40*time.Second)
	admitted := 0
	for range 50 {
		if allowed(t, s, "user", "alice") {
			admitted++
		}
		flood(20)
	}
	if admitted != 5 {
		t.Errorf("%d of 50 logins were admitted beside the flood, want 5", admitted)
	}
	m := must.Get(servers.Scrape(s.Debug))(t)
	if m.Sum("spillway_memory_evicted_total") == 0 {
		t.Error("nothing was evicted: the flood was too small")
	}
}

// allowed asks over /json about one entry.
func allowed(t *testing.T, s *servers.Sidecar, key, value string) bool {
	t.Helper()
	body := must.Get(json.Marshal(map[string]any{"domain": "shop",
		"descriptors": []any{map[string]any{"entries": []any{map[string]string{"key": key, "value": value}}}}}))(t)
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+s.HTTP+"/json", bytes.NewReader(body)))(t)
	got, err := do(http.DefaultClient, r)
	if err != nil {
		t.Fatalf("ask the sidecar: %v", err)
	}
	return got.status == http.StatusOK
}
