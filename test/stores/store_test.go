package stores

import (
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestStoreCounts: a limit of five admits five and refuses the sixth, whichever script decides it.
func TestStoreCounts(t *testing.T) {
	_, s := start(t)
	for _, kind := range []string{"tree", "token_bucket", "sliding_window", "fixed_window", "sliding_log"} {
		t.Run(kind, func(t *testing.T) {
			domain, entries := "rules", []string{"user", "alice", "kind", kind}
			if kind == "tree" {
				domain, entries = "tree", []string{"user", "alice"}
			}
			for n := range int64(6) {
				got := ask(t, s, domain, entries...)
				want, left := "OK", 4-n
				if n == 5 {
					want, left = "OVER_LIMIT", 0
				}
				if got.Code != want || len(got.Statuses) != 1 || got.Statuses[0].Remaining != left ||
					got.Metadata.Degraded != "" {
					t.Fatalf("request %d is answered %+v, want %s with %d left, by Redis", n+1, got, want, left)
				}
			}
		})
	}
}

// TestStoreIsKnown: the log has what the server is, and no complaint about it.
func TestStoreIsKnown(t *testing.T) {
	_, s := start(t)
	awaitLog(t, s, "INFO", "redis is there")
	awaitReady(t, s, "ok\n")
}

// TestStoreThatForbidsACommandOfTheScript: versions word this differently. It is the operator's error: a reason of its
// own in the answer, the metrics and /readyz, and the breaker stays closed.
func TestStoreThatForbidsACommandOfTheScript(t *testing.T) {
	redis, s := start(t)
	ask(t, s, "rules", "user", "alice", "kind", "open")
	redis.Do(t, "ACL", "SETUSER", "default", "-set")
	got := ask(t, s, "rules", "user", "bob", "kind", "open")
	if got.Code != "OK" || got.Metadata.Degraded != "noperm" {
		t.Errorf("the answer is %+v, want one by the rule's policy, for the reason noperm", got)
	}
	wantNoPerm(t, s)
	redis.Do(t, "ACL", "SETUSER", "default", "+set")
	if got := ask(t, s, "rules", "user", "bob", "kind", "open"); got.Metadata.Degraded != "" {
		t.Errorf("with the right again the answer is degraded: %q", got.Metadata.Degraded)
	}
}

// TestStoreThatForbidsTheScript is the same for a user that may run no script.
func TestStoreThatForbidsTheScript(t *testing.T) {
	redis, s := start(t)
	redis.Do(t, "ACL", "SETUSER", "default", "-evalsha", "-eval")
	got := ask(t, s, "rules", "user", "bob", "kind", "open")
	if got.Code != "OK" || got.Metadata.Degraded != "noperm" {
		t.Errorf("the answer is %+v, want one by the rule's policy, for the reason noperm", got)
	}
	wantNoPerm(t, s)
}

// TestStoreThatForbidsTheKeys is the same for a user that may not touch the counters.
func TestStoreThatForbidsTheKeys(t *testing.T) {
	redis, s := start(t)
	redis.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~none")
	got := ask(t, s, "rules", "user", "bob", "kind", "open")
	if got.Code != "OK" || got.Metadata.Degraded != "noperm" {
		t.Errorf("the answer is %+v, want one by the rule's policy, for the reason noperm", got)
	}
	wantNoPerm(t, s)
}

func wantNoPerm(t *testing.T, s *servers.Sidecar) {
	t.Helper()
	awaitReady(t, s, "redis: noperm")
	m, err := servers.Scrape(s.Debug)
	if err != nil {
		t.Fatalf("read the metrics: %v", err)
	}
	if n := m.Sum("spillway_store_errors_total", `reason="noperm"`); n == 0 {
		t.Error("spillway_store_errors_total does not count the reason noperm")
	}
	wantBreakerClosed(t, s)
}

// TestStoreThatEvicts: a server that throws counters away when its memory is full gets a warning.
func TestStoreThatEvicts(t *testing.T) {
	_, s := start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	awaitLog(t, s, "WARN", "policy=allkeys-lru")
}
