package control_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestAChangeSaysWhetherItIsInForce changes things while Redis is away, at the control that leads and at the other one:
// the command ends with 0, and prints what has to come before they are in force. Both controls stay ready, and name
// what is wrong. Once Redis is back the changes are in force, and later ones at once.
func TestAChangeSaysWhetherItIsInForce(t *testing.T) {
	w := newWorld(t, 2, 1)
	w.must("POST", versions, map[string]any{"text": rulesOf(1000)})
	w.awaitVersion(1)
	rules, shells := put(t, "five.yaml", rulesOf(5)), make([]*shell, len(w.controls))
	for i, c := range w.controls {
		shells[i] = &shell{t: t, control: c.URL}
		w.awaitForced(i, "before")
		servers.Await(t, "a command without a word about Redis", func() error {
			if out := shells[i].says(0, "block mallory --reason abuse"); strings.Contains(out, "in force once") {
				return errors.New(out)
			}
			return nil
		})
	}
	w.redis.Kill(t)
	const away = "the control plane has Redis back (dial tcp "
	for i, s := range shells {
		w.awaitDegraded(i, `"degraded": "redis: dial; changes are kept, and in force once Redis answers"`)
		if err := w.forced(i, "during", "false", away); err != nil {
			t.Error(err)
		}
		user := fmt.Sprint("ann-", i)
		s.says(0, "block "+user+" --for 1h", "after:  blocked until ", "kept; in force once "+away)
		s.says(0, "unblock "+user, "kept; in force once "+away)
		s.says(0, "block "+user, "after:  blocked for ever", "kept; in force once "+away)
		s.says(0, fmt.Sprintf("tiers set gold-%d --limit 5/1m", i), "kept; in force once "+away)
		s.says(0, fmt.Sprintf("tiers rm gold-%d", i), "is removed", "kept; in force once "+away)
		s.says(0, "users set "+user+" --quota-day 5", "kept; in force once "+away)
		s.says(0, fmt.Sprintf("keys create key-%d --user %s", i, user), "spw_", "kept; in force once "+away)
		s.says(0, "users load "+put(t, "users.csv", fmt.Sprintf("name,quota_day\nload-%d,5\n", i)),
			"1 made", "kept; in force once "+away)
		out := s.says(0, "block "+user+" -o json")
		var o struct {
			InForce *bool  `json:"in_force"`
			Once    string `json:"in_force_once"`
		}
		must.Do(t, json.Unmarshal([]byte(out), &o))
		if o.InForce == nil || *o.InForce || !strings.HasPrefix(o.Once, away) {
			t.Errorf("as JSON it is %s", out)
		}
	}
	shells[1].says(0, "rules publish "+rules+" --yes", "api: version 2 (publication 2) is kept; in force once "+away)
	shells[0].says(0, "rules rollback --yes", "api: version 1 (publication 3) is kept; in force once "+away)
	w.redis.Start(t)
	w.awaitPasses("ann-0", false)
	w.awaitPasses("ann-1", false)
	for i := range w.controls {
		w.awaitDegraded(i, "")
		w.awaitForced(i, "after")
	}
}

// awaitForced waits until a change is in force when it is answered.
func (w *world) awaitForced(control int, user string) {
	w.t.Helper()
	servers.Await(w.t, "a change that is in force at once", func() error { return w.forced(control, user, "true", "") })
}

// forced blocks a user at a control, and returns what is wrong with the header of the answer.
func (w *world) forced(control int, user, want, once string) error {
	r := must.Get(http.NewRequest("PUT", w.controls[control].URL+"/v1/domains/api/blocks/user/"+user,
		strings.NewReader("{}")))(w.t)
	r.Header.Set("Content-Type", "application/json")
	got := must.Get(http.DefaultClient.Do(r))(w.t)
	got.Body.Close()
	h := got.Header
	if h.Get("spillway-in-force") != want || !strings.HasPrefix(h.Get("spillway-in-force-once"), once) ||
		(once == "") != (h.Get("spillway-in-force-once") == "") {
		return fmt.Errorf("control %d answers %v", control, h)
	}
	return nil
}

// awaitDegraded waits until a control, which has to stay ready, names what is wrong, or nothing.
func (w *world) awaitDegraded(control int, want string) {
	w.t.Helper()
	servers.Await(w.t, "the readiness of a control", func() error {
		got := w.call(control, "GET", "/readyz", nil)
		if got.status != http.StatusOK {
			w.t.Fatalf("/readyz of control %d answers %d: %s", control, got.status, got.text)
		}
		if !strings.Contains(got.text, want) || want == "" && strings.Contains(got.text, "degraded") {
			return errors.New(got.text)
		}
		return nil
	})
}
