package control_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestACanaryIsTriedBySomeSidecars publishes a stricter version to half of the sidecars, as their names choose: those
// refuse more, and the command compares the two. A larger share takes more sidecars in and none out; a roll back ends
// the canary everywhere, and a publication puts it into force everywhere.
func TestACanaryIsTriedBySomeSidecars(t *testing.T) {
	w := newWorld(t, 1, 0)
	for _, name := range []string{trier(t, 0, 30), trier(t, 30, 60), trier(t, 60, 99)} {
		w.sidecars = append(w.sidecars, servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr,
			"STORE_SILENCE=1s", "STORE_PATIENCE=2s", "LEASES=false", "SIDECAR_NAME="+name))
	}
	s := &shell{t: t, control: w.controls[0].URL, sidecar: w.sidecars[0].Debug}
	strict := put(t, "strict.yaml", rulesOf(0))
	s.says(6, "rules publish "+strict+" --canary 30% --yes", "none is in force")
	s.says(0, "rules publish "+put(t, "loose.yaml", rulesOf(1000))+" --yes", "version 2 is in force")
	w.awaitVersion(1)
	s.says(6, "rules canary", "no canary runs")
	s.says(6, "rules publish @1 --canary 100%", "canary")
	s.says(0, "rules publish @1 --canary 30%", "version 1 is a canary on 30 %", "1000/1m → 0/1m")
	w.awaitVersion(2)
	w.triedBy("ann", true, false, false)
	servers.Await(t, "the numbers of both versions", func() error {
		out, code := s.run("rules", "canary")
		if code != 0 || !strings.Contains(out, "100.0 %") || !strings.Contains(out, "0.0 %") {
			return errors.New(out)
		}
		return nil
	})
	servers.Await(t, "the canary in the list of sidecars", func() error {
		out, code := s.run("sidecars", "list")
		if code != 0 || strings.Contains(out, "DIFFER") || strings.Count(out, "api@1") != 1 {
			return fmt.Errorf("%d %s", code, out)
		}
		return nil
	})
	s.says(0, "rules publish @1 --canary 60%", "version 1 is a canary on 60 %")
	w.awaitVersion(3)
	w.triedBy("ben", true, true, false)
	s.says(0, "rules rollback --yes", "0/1m → 1000/1m", "api: version 2 is in force (publication 4)")
	s.says(2, "rules rollback --yes", "version 1 was rolled back from; name the version: spillway rules publish @N")
	w.awaitVersion(4)
	w.triedBy("cem", false, false, false)
	s.says(0, "rules publish @1", "api: version 1 is in force (publication 5)")
	w.awaitVersion(5)
	w.triedBy("dora", true, true, true)
}

// trier is the name of a sidecar that uses a canary of a share of to percent, and none of from.
func trier(t *testing.T, from, to int) string {
	t.Helper()
	for i := range 10_000 {
		name := fmt.Sprint("sidecar-", i)
		uses := func(share int) bool {
			return (rules.Document{Version: 1, Canary: 2, Share: share}).For(name).Version == 2
		}
		if uses(to) && !uses(from) {
			return name
		}
	}
	t.Fatal("no name is chosen")
	return ""
}

// triedBy checks which sidecars use rules that refuse everything.
func (w *world) triedBy(user string, want ...bool) {
	w.t.Helper()
	for i := range w.sidecars {
		if refused := !w.ask(i, user); refused != want[i] {
			w.t.Errorf("sidecar %d refuses: %v, want %v", i, refused, want[i])
		}
	}
}
