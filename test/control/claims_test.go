package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestASidecarRefusesWhatAControlKeeps changes at a sidecar what a control would undo: the sidecar names the command
// that asks the control. What no control keeps is changed, and everything once the control is away.
func TestASidecarRefusesWhatAControlKeeps(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.must("POST", versions, map[string]any{"text": rulesOf(2)})
	w.awaitVersion(1)
	mallory, ann := map[string]any{"user": "mallory"}, map[string]any{"user": "ann", "tier": "gold"}
	w.awaitRefused("/v1/block", map[string]any{"user": "mallory", "dry_run": true}, "spillway blocks set user/mallory")
	w.awaitRefused("/v1/block", mallory, "spillway blocks set user/mallory")
	w.awaitRefused("/v1/tier", ann, "spillway users set ann")
	for path, body := range map[string]any{
		"/v1/unblock": mallory, "/v1/reset": mallory, "/v1/pardon": mallory,
		"/v1/tier": map[string]any{"tenant": "acme", "tier": "gold"},
	} {
		if got := w.send("http://"+w.sidecars[0].Debug, "POST", path, body); got.status != http.StatusOK {
			t.Errorf("%s of what no control keeps answers %d: %s", path, got.status, got.text)
		}
	}
	w.must("PUT", "/v1/domains/api/blocks/user/mallory", map[string]any{"reason": "abuse"})
	w.awaitRefused("/v1/unblock", map[string]any{"user": "mallory", "dry_run": true}, "spillway blocks rm user/mallory")
	w.controls[0].End(t)
	w.redis.Do(t, "DEL", keys.NewNames("", nil).Shared("claims")) // as its end does
	for path, body := range map[string]any{"/v1/block": mallory, "/v1/tier": ann} {
		if got := w.send("http://"+w.sidecars[0].Debug, "POST", path, body); got.status != http.StatusOK {
			t.Errorf("%s without a control answers %d: %s", path, got.status, got.text)
		}
	}
}

// awaitRefused waits until the sidecar refuses a change, and names a command.
func (w *world) awaitRefused(path string, body map[string]any, command string) {
	w.t.Helper()
	servers.Await(w.t, "a refusal of "+path, func() error {
		got, err := try("http://"+w.sidecars[0].Debug, "POST", path, body)
		if err == nil && (got.status != http.StatusConflict || !strings.Contains(got.text, command)) {
			return fmt.Errorf("it answers %d: %s", got.status, got.text)
		}
		return err
	})
}
