//go:build full

package stores

import "testing"

// TestOldStore: a Redis before 7.0 does not know all commands of the scripts. That is the operator's error: the log and
// /readyz name the version, requests that need these commands go by their failure policies, and the breaker stays
// closed. SPILLWAY_TEST_REDIS has to be such a server.
func TestOldStore(t *testing.T) {
	_, s := start(t)
	awaitLog(t, s, "ERROR", "redis is too old: its version must be at least 7.0")
	awaitReady(t, s, "is version 6.2.")
	awaitReady(t, s, "and must be at least 7.0")
	ask(t, s, "rules", "user", "alice", "kind", "fixed_window")
	// now its window is there, and its end is asked for
	got := ask(t, s, "rules", "user", "alice", "kind", "fixed_window")
	if got.Code != "OK" || got.Metadata.Degraded != "script" {
		t.Errorf("the answer is %+v, want one by the rule's policy, for the reason script", got)
	}
	wantBreakerClosed(t, s)
}
