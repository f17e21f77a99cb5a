package control_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// shell runs the command spillway against a control.
type shell struct {
	t       testing.TB
	control string
	sidecar string
	token   string // a file
}

// run returns what a command prints, its errors behind it, and its exit code.
func (s *shell) run(args ...string) (string, int) {
	s.t.Helper()
	cmd := exec.Command(servers.SpillwayBin(s.t), args...)
	cmd.Env = []string{"SPILLWAY_CONTROL=" + s.control, "SPILLWAY_SERVER=" + s.sidecar}
	cmd.Dir = servers.Root(s.t)
	if s.token != "" {
		cmd.Args = append(cmd.Args, "--token-file", s.token)
	}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		s.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// says runs a command, which has to end with a code and print some texts.
func (s *shell) says(code int, line string, texts ...string) string {
	s.t.Helper()
	out, got := s.run(strings.Fields(line)...)
	if got != code {
		s.t.Errorf("spillway %s ends with %d, want %d:\n%s", line, got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.t.Errorf("spillway %s does not print %q:\n%s", line, text, out)
		}
	}
	return out
}

// put writes a file of the test's own.
func put(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestCommands goes through the commands that ask a control, as an operator does, with two sidecars that take what they
// change.
func TestCommands(t *testing.T) {
	w := newWorld(t, 1, 2)
	s := &shell{t: t, control: w.controls[0].URL}
	t.Run("rules", func(t *testing.T) { s.t = t; ruleCommands(t, w, s) })
	t.Run("tiers, users and keys", func(t *testing.T) { s.t = t; peopleCommands(t, w, s) })
	t.Run("blocks and audit", func(t *testing.T) { s.t = t; blockCommands(w, s) })
	t.Run("load", func(t *testing.T) { s.t = t; loadCommand(t, w, s) })
	t.Run("unpublish", func(t *testing.T) { s.t = t; unpublishCommand(t, w, s) })
	t.Run("round trip", func(t *testing.T) { s.t = t; roundTrip(t, s) })
}

func ruleCommands(t *testing.T, w *world, s *shell) {
	two, five := put(t, "two.yaml", rulesOf(2)), put(t, "five.yaml", rulesOf(5))
	s.says(2, "rules export", "--domain is missing: no rules are published yet")
	s.says(2, "rules publish "+two, "--draft keeps the file as a version")
	s.says(0, "rules publish "+two+" --yes --note first", "api: version 1 is in force (publication 1)")
	s.says(0, "rules publish "+five+" --draft", "api: version 2 is kept, and not published",
		"rules publish @2 --domain api", "2/1m → 5/1m")
	s.says(1, "rules diff @2", "2/1m → 5/1m")
	s.says(0, "rules publish "+five+" --yes --if-match 1", "api: version 3 is in force (publication 2)", "2/1m → 5/1m")
	s.says(6, "rules publish @2 --if-match 1", "changed meanwhile")
	s.says(0, "rules publish @3", "api: version 3 is in force already")
	s.says(2, "rules publish @3 "+five, "a version is published alone")
	s.says(0, "rules publish "+five+" --yes", "api: version 3 is in force already")
	s.says(6, "rules publish "+put(t, "six.yaml", rulesOf(6))+" --yes --if-match 1", "changed meanwhile")
	s.says(0, "rules list", "api", "DOMAIN")
	s.says(0, "rules list --domain api", "VERSION", "first", "yes")
	s.says(0, "rules show @", "sha256", "limit: 5/1m")
	s.says(1, "rules diff", "2/1m → 5/1m")
	s.says(0, "rules diff @2 @3", "No difference.")
	s.says(2, "rules diff @2 "+five, "a file and a version cannot be compared")
	w.awaitVersion(2)
	s.says(2, "rules rollback", "without a terminal the command cannot ask: name the version, or add --yes")
	s.says(0, "rules rollback --note few --yes", "5/1m → 2/1m", "api: version 1 is in force (publication 3)")
	s.says(2, "rules rollback --yes", "version 3 was rolled back from; name the version: spillway rules publish @N")
	w.awaitVersion(3)
	if got := w.admits("zoe", 6); got != 2 {
		t.Errorf("after the roll back %d of 6 pass, want 2", got)
	}
	s.says(6, "rules rollback @9", `there is no version 9 of the domain "api"`)
	s.says(6, "rules show @9", `there is no version 9 of the domain "api"`)
	s.says(2, "rules show nine", "must be @ and a number from 1")
	bad := put(t, "bad.yaml", "domain: api\nrules:\n  - { name: a, scope: planet, limit: 1/1m }\n")
	s.says(3, "rules publish "+bad+" --yes", bad+":3:")
	misspelt(w, s)
	out, _ := s.run("rules", "list", "--domain", "api", "-o", "json")
	var view struct {
		InForce  int `json:"in_force"`
		Versions []struct{ Version int }
	}
	if err := json.Unmarshal([]byte(out), &view); err != nil || view.InForce != 1 || len(view.Versions) != 4 {
		t.Errorf("as JSON it is %s (%v)", out, err)
	}
	sidecar := &shell{t: t}
	sidecar.says(0, "rules show --server "+w.sidecars[0].Debug, "per-user")
	sidecar.says(0, "reset zoe --dry-run --server "+w.sidecars[0].Debug, "nothing is changed", "BEFORE")
	sidecar.says(0, "reset zoe --server "+w.sidecars[0].Debug, "AFTER")
	sidecar.says(1, "reset zoe --server "+w.sidecars[0].Debug, "no counter of user zoe in api has been used")
}

func peopleCommands(t *testing.T, w *world, s *shell) {
	s.says(6, "users set ann --tier gold",
		`tier "gold" does not exist in the domain api: spillway tiers list shows those that do`)
	s.says(0, "tiers set gold --limit 4/1m --price 9.5 --display-name Gold", "gold", "Gold", "4/1m", "9.5")
	s.says(6, "users list --tier gol", `unknown tier "gol" in the domain "api": there is gold; did you mean "gold"?`)
	s.says(0, "users set ann --tier gold --quota-month 1000", "tier", "gold", "1000")
	s.says(0, "users set ann --quota-month none --quota-day 50", "gold", "50")
	if out := s.says(0, "users show ann", "per day"); strings.Contains(out, "1000") {
		t.Errorf("none does not remove a quota:\n%s", out)
	}
	s.says(6, "users set ann --quota-day 60 --if-match 1", "changed meanwhile")
	s.says(0, "users set ann --quota-day none", "gold")
	s.says(2, "users set ann --quota-day many", "must be a whole number or none")
	s.says(6, "users show ben", `there is no user "ben" in the domain "api"`)
	s.says(6, "tiers rm gold", `tier "gold" is in use: spillway users list --tier gold shows its users`)
	servers.Await(t, "the tier on all sidecars", func() error {
		if got := w.admits("ann", 12); got < 4 {
			return fmt.Errorf("%d of 12 pass, want 4", got)
		}
		return nil
	})
	made := s.says(0, "keys create ann-1 --user ann --expires 90d", "secret", "spw_", "shown this once")
	s.says(6, "keys create ann-1 --user ann", "ann-1 exists: choose another id")
	s.says(0, "keys list --user ann", "ann-1", "valid", "PREFIX")
	_, made, _ = strings.Cut(made, "secret")
	secret, _, _ := strings.Cut(made, "\n")
	if strings.Contains(s.says(0, "keys list"), strings.TrimSpace(secret)) {
		t.Error("a list of keys shows a secret")
	}
	keyCommands(w, s, strings.TrimSpace(secret))
	s.says(6, "keys rm ann-3", `there is no key "ann-3"`)
	s.says(6, "users rm ann", "in use")
	s.says(0, "users set ben --quota-hour 10 --burst 3", "burst")
	s.says(0, "users list --prefix b", "ben")
	if out := s.says(0, "users list --tier gold", "ann"); strings.Contains(out, "ben") {
		t.Errorf("--tier lists others:\n%s", out)
	}
	s.says(0, "users rm ben", `user "ben" in the domain "api" is removed`)
}

// keyCommands changes a key, and rotates it: both secrets are valid until the old one ends.
func keyCommands(w *world, s *shell, secret string) {
	s.says(0, "keys set ann-1 --tier gold --limit 90/1m --name laptop", "laptop", "gold", "90/1m")
	out := s.says(0, "keys set ann-1 --limit none --expires none", "laptop", "gold")
	if strings.Contains(out, "90/1m") {
		s.t.Errorf("none does not remove the limits of a key:\n%s", out)
	}
	s.says(6, "keys set ann-9 --tier gold", `there is no key "ann-9"`)
	s.says(6, "keys set ann-1 --tier iron", "there is no tier iron: make it first")
	out = s.says(0, "keys rotate ann-1 ann-2 --overlap 1h --expires 30d", "laptop", "spw_", "shown this once",
		"ann-1: valid until ")
	_, rest, _ := strings.Cut(out, "secret")
	next, _, _ := strings.Cut(rest, "\n")
	_, rest, _ = strings.Cut(out, "expires")
	end, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	for _, one := range []string{secret, strings.TrimSpace(next)} {
		w.awaitKey(one, true)
	}
	list := s.says(0, "keys list --user ann", "ann-1", "ann-2")
	if !strings.Contains(list, time.Now().UTC().Add(time.Hour).Format("2006-01-02T")) {
		s.t.Errorf("the list does not show the end of the old key:\n%s", list)
	}
	s.says(2, "keys rotate ann-2 ann-3 --overlap soon", "must be an instant")
	s.says(6, "keys rotate ann-9 ann-10", `there is no key "ann-9"`)
	s.says(2, "keys rotate ann-2 ann-3 --expires none", "keys set ann-3 --expires none")
	s.says(0, "keys rotate ann-2 ann-4 --overlap 0", "ann-2: ended", end)
	w.awaitKey(strings.TrimSpace(next), false)
	w.awaitKey(secret, true)
	s.says(0, "keys show ann-2", "revoked by")
	s.says(6, "keys create ann-2 --user ann", "ann-2 exists and is revoked: choose another id")
	s.says(6, "keys rotate ann-4 ann-2", "ann-2 exists and is revoked: choose another id")
	s.says(6, "keys rotate ann-2 ann-5", "ann-2 is revoked: make another key")
	s.says(6, "keys set ann-2 --tier gold", "ann-2 is revoked: make another key")
	s.says(0, "keys rm ann-4", "revoked by")
	s.says(0, "keys rm ann-1", "revoked by")
	s.says(0, "audit list --kind key --name ann-1", "rotate", "set", "revoke")
}

func blockCommands(w *world, s *shell) {
	s.says(2, "blocks set --reason no", "an argument is missing")
	s.says(2, "block 192.0.2.7", "must be a user's name, or KIND/NAME")
	s.says(2, "block ann --note no", "--note is for a sidecar alone")
	s.says(0, "block ann --for 1h --dry-run", "nothing is changed: user ann in api", "after:  blocked until")
	s.says(0, "block ann --for 1h --reason unpaid", "user ann in api", "before: none", "after:  blocked until ",
		"unpaid")
	s.says(6, "blocks set ip/10.0.0.0/7", "wider than /8")
	s.says(0, "blocks set ip/10.0.0.0/7 --wide", "10.0.0.0/7")
	s.says(0, "blocks rm ip/10.0.0.0/7")
	s.says(0, "blocks set ip/192.0.2.0/24", "ip 192.0.2.0/24 in api", "blocked for ever")
	s.says(0, "blocks list", "ann", "192.0.2.0/24")
	servers.Await(s.t, "the block on all sidecars", func() error {
		if w.admits("ann", 2) > 0 {
			return errors.New("ann passes")
		}
		return nil
	})
	sidecar := &shell{t: s.t, sidecar: w.sidecars[0].Debug}
	sidecar.says(6, "unblock ann", "spillway blocks rm user/ann")
	sidecar.says(6, "tier ann gold --dry-run", "spillway users set ann")
	s.says(0, "unblock ann", "after:  none")
	s.says(0, "blocks rm ip/192.0.2.0/24", "after:  none")
	s.says(6, "unblock ann", `there is no block of the user "ann"`)
	s.says(0, "tier ann none", "before: tier gold", "after:  nothing")
	s.says(0, "tier ann gold", "after:  tier gold")
	s.says(2, "tenants set acme --tier gold", "a control keeps tiers of users")
	s.says(0, "audit list --kind user --name ann", "unblock", "block_reason: none → unpaid", "tier: none → gold")
	s.says(0, "audit list --domain api --limit 2 -o json", `"entries"`, `"action": "set"`)
}

// loadCommand loads users whole or not at all.
func loadCommand(t *testing.T, w *world, s *shell) {
	var csv strings.Builder
	csv.WriteString("name,tier,quota_hour,burst\n")
	for i := range 3000 {
		fmt.Fprintf(&csv, "load-%04d,gold,,\n", i)
	}
	good := put(t, "users.csv", csv.String()+"\"odd, name\",,7,2\n")
	s.says(0, "users load "+good+" --progress always", "3001 users: 3001 made, 0 changed, 0 the same as before",
		"lines are sent")
	s.says(0, "users load "+good, "3001 users: 0 made, 0 changed, 3001 the same as before")
	more := put(t, "more.jsonl", `{"name": "odd, name", "quota_hour": 9}`+"\n\n"+`{"name": "new one"}`+"\n")
	s.says(0, "users load "+more, "2 users: 1 made, 1 changed, 0 the same as before")
	wrong := put(t, "wrong.csv", `name,tier,quota_hour
a,gold,1
b,gold,none
c,nothing,3
,gold,4
d,gold
a,gold,-1
`)
	s.says(6, "users load "+wrong, "nothing was loaded; wrong lines: 4", `line 3: quota_hour is "none"`,
		"line 5: the name must have", "line 6: it has 2 fields", "line 7: quota_hour must be")
	twice := put(t, "twice.csv", "name,tier\na,gold\nb,iron\na,gold\n")
	s.says(6, "users load "+twice, `line 4: the name "a" is there more than once`, `line 3: there is no tier "iron"`)
	s.says(6, "users load "+put(t, "head.csv", "user\na\n"), `the column "user" is unknown`)
	s.says(6, "users load "+put(t, "bad.jsonl", "{\"name\": \"a\"}\n{\"nam\": 1}\n"), "line 2: ", "nam")
	s.says(2, "users load "+good+".gz", "--format csv or --format jsonl")
	if out, _ := s.run("users", "list", "--prefix", "a"); strings.Count(out, "\n") != 2 {
		t.Errorf("a load that was refused leaves users:\n%s", out)
	}
	s.says(0, "audit list --kind user --limit 1", "load", "changed: none → 1, lines: none → 2, made: none → 1")
	got := w.must("GET", "/v1/domains/api/users/load-2999", nil)
	if got.body["tier"] != "gold" {
		t.Errorf("the last user is %s", got.text)
	}
	servers.Await(t, "the record of a loaded user", func() error {
		usage := w.send("http://"+w.sidecars[0].Debug, "GET", "/v1/usage?domain=api&user=load-2999", nil)
		if !strings.Contains(usage.text, `"tier": "gold"`) {
			return errors.New(usage.text)
		}
		return nil
	})
	servers.Await(t, "nothing to do", func() error {
		if got := w.must("GET", "/v1/status", nil); got.body["pending"] != 0.0 {
			return errors.New(got.text)
		}
		return nil
	})
}

// unpublishCommand takes a domain out of force, and puts it back.
func unpublishCommand(t *testing.T, w *world, s *shell) {
	s.says(2, "rules unpublish", "--domain is missing")
	s.says(0, "rules unpublish --domain api", "api: no version is in force (publication 4)")
	for i := range w.sidecars {
		servers.Await(t, "no rules", func() error {
			got := w.send("http://"+w.sidecars[i].Debug, "GET", "/v1/rules", nil)
			if strings.Contains(got.text, "per-user") {
				return errors.New(got.text)
			}
			return nil
		})
	}
	s.says(6, "rules export --domain api", "nothing is in force")
	shop := put(t, "shop.yaml", strings.Replace(rulesOf(2), "domain: api", "domain: shop", 1))
	s.says(0, "rules publish "+shop+" --yes", "shop: version 1 is in force")
	s.says(0, "rules show @", "shop") // of two domains one alone is in force
	s.says(0, "rules unpublish --domain shop", "shop: no version is in force")
	s.says(0, "usage show ann --domain api", "today")
	s.says(0, "rules rollback @1 --domain api", "api: version 1 is in force (publication 5)")
	w.awaitVersion(5)
}

// roundTrip imports the rule files of the examples, and exports them to the byte.
func roundTrip(t *testing.T, s *shell) {
	const examples = "examples/rules"
	s.says(0, "rules publish "+examples+" --yes", "is in force (publication")
	out := s.says(0, "rules publish "+examples+" --yes", "is in force already")
	if strings.Contains(out, "publication") {
		t.Errorf("publishing again publishes:\n%s", out)
	}
	folder := t.TempDir()
	s.says(0, "rules export --to "+folder)
	written := must.Get(os.ReadDir(folder))(t)
	texts := map[string]bool{}
	for _, e := range written {
		text := must.Get(os.ReadFile(filepath.Join(folder, e.Name())))(t)
		texts[string(text)] = true
	}
	files, err := filepath.Glob(filepath.Join(servers.Root(t), examples, "*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		if !texts[string(text)] {
			t.Errorf("%s does not come back to the byte", file)
		}
	}
	s.says(0, "rules publish "+folder+" --yes", "is in force already")
}

// TestCommandsAndRoles asks a control that has tokens.
func TestCommandsAndRoles(t *testing.T) {
	var lines bytes.Buffer
	files := map[string]string{}
	for _, role := range []string{"viewer", "operator", "admin"} {
		out := must.Get(exec.Command(servers.SpillwayBin(t), "tokens", "create", role, "the-"+role).Output())(t)
		secret, line, _ := strings.Cut(string(out), "\n")
		files[role] = put(t, "token", secret+"\n")
		lines.WriteString(line)
	}
	tokens := put(t, "tokens", lines.String())
	w := newWorld(t, 1, 0, "CONTROL_TOKEN_FILE="+tokens)
	rules, users := put(t, "rules.yaml", rulesOf(2)), put(t, "users.csv", "name\nann\n")
	s := &shell{t: t, control: w.controls[0].URL}
	s.says(6, "rules list", "--token-file names")
	s.says(6, "users load "+users+" --domain api", "--token-file names")
	s.token = files["viewer"]
	s.says(0, "rules list", "DOMAIN")
	s.says(6, "users set ann --domain api", "the-viewer has the role viewer, and this needs the role operator")
	s.says(6, "users load "+users+" --domain api", "needs the role operator")
	s.token = files["operator"]
	s.says(6, "rules publish "+rules+" --yes", "needs the role admin")
	s.says(0, "users load "+users+" --domain api", "1 made")
	s.token = files["admin"]
	s.says(0, "rules publish "+rules+" --yes", "version 1 is in force")
	s.says(0, "audit list --domain api", "the-operator", "the-admin")
	// A token that is taken out of the file is refused, at once after a signal, which does not end the control.
	viewer, others, _ := strings.Cut(lines.String(), "\n")
	must.Do(t, os.WriteFile(tokens, []byte(others), 0o600))
	for range 3 {
		w.controls[0].Send(t, syscall.SIGHUP)
	}
	servers.Await(t, "word of tokens that were read again", func() error {
		if !strings.Contains(w.controls[0].Output(), "tokens read again") {
			return errors.New("none")
		}
		return nil
	})
	s.says(0, "rules list", "DOMAIN")
	s.token = files["viewer"]
	s.says(6, "rules list", "--token-file")
	must.Do(t, os.WriteFile(tokens, []byte(others+strings.TrimSpace(viewer)+" other\n"), 0o600))
	servers.Await(t, "a token for one domain", func() error {
		text, code := s.run("rules", "list", "--domain", "api")
		if code != 6 || !strings.Contains(text, "the domains other alone") {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	s.control = "http://127.0.0.1:1"
	s.says(6, "rules list", "is a control there?", "--control")
}
