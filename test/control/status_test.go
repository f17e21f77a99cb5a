package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// TestStatusShowsAnOutageOfRedis takes Redis away from a control: the command ends with 1 and names the problem, counts
// the changes that wait, and ends with 0 once Redis is back and has them.
func TestStatusShowsAnOutageOfRedis(t *testing.T) {
	w := newWorld(t, 1, 0)
	s := &shell{t: t, control: w.controls[0].URL}
	w.must("POST", versions, map[string]any{"text": rulesOf(5)})
	s.awaitStatus(0, "leads            yes", "pending changes  0")
	w.redis.Kill(t)
	s.awaitStatus(1, "leads            yes", "problem ")
	w.must("PUT", "/v1/domains/api/users/ann", map[string]any{"quota_day": 7})
	s.awaitStatus(1, "pending changes  1", "problem ")
	w.redis.Start(t)
	out := s.awaitStatus(0, "pending changes  0")
	if strings.Contains(out, "problem") {
		t.Errorf("with Redis there is still a problem:\n%s", out)
	}
}

// awaitStatus waits until the command ends with a code and prints all of some texts.
func (s *shell) awaitStatus(code int, texts ...string) (out string) {
	s.t.Helper()
	servers.Await(s.t, fmt.Sprintf("the status %d with %q", code, texts), func() error {
		var got int
		out, got = s.run("control", "status")
		for _, text := range texts {
			if got != code || !strings.Contains(out, text) {
				return fmt.Errorf("it ends with %d:\n%s", got, out)
			}
		}
		return nil
	})
	return out
}

// misspelt asks for what there is not.
func misspelt(w *world, s *shell) {
	s.t.Helper()
	for _, list := range []string{"users list", "keys list", "blocks list", "rules list", "events list", "usage list",
		"reports show violations"} {
		s.says(6, list+" --domain ap", `unknown domain "ap": there is api; did you mean "api"?`)
	}
	s.says(0, "events list --user nosuch", `nothing is known of a user "nosuch" in the domain "api"`)
	s.says(6, "reports show refusals", "--user is missing")
	s.says(6, "reports show violations --since soon", "--since", "must be a time such as 90m")
	s.says(6, "usage show acme", "spillway usage list --tenant acme")
	s.says(6, "sidecars list --server "+w.sidecars[0].GRPC, "this is a gRPC port", "DEBUG_PORT",
		"http://127.0.0.1:6070")
}
