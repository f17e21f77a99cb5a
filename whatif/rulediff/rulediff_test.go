package rulediff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/must"
)

// load loads a text.
func load(t *testing.T, text string) rules.Load {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.yaml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	l := rules.Read(rules.FilesConfig{}, path)
	if l.Rejected() {
		t.Fatal(l.Text())
	}
	return l
}

const shop = `domain: shop
costs:
  - { match: { endpoints: ["/search"] }, cost: 2 }
rules:
  - { name: per-user, scope: user, limit: 20/1m }
  - { name: search, scope: user, match: { endpoints: ["/search"], methods: [POST] }, limit: { count: 10, per: 1m,
      burst: 20 } }
  - { name: office, match: { cidrs: ["203.0.113.0/24"] }, action: allow }
  - { name: abuse, match: { users: [mallory] }, action: block }
  - { name: trial, scope: global, limit: 100/1s, action: log_only }
users:
  carol: { tier: gold, limits: [100/1m] }
descriptors:
  - key: route
    value: login
    descriptors:
      - key: user
        rate_limit: { unit: hour, requests_per_unit: 5 }
`

// compare returns what differs after some replacements in the shop's rules.
func compare(t *testing.T, replacements ...string) *Diff {
	t.Helper()
	text := strings.NewReplacer(replacements...).Replace(shop)
	if len(replacements) > 0 && text == shop {
		t.Fatalf("nothing of %q is in the rules", replacements)
	}
	return compared(t, load(t, shop), load(t, text))
}

// TestKindsOfChanges makes one change at a time.
func TestKindsOfChanges(t *testing.T) {
	for _, c := range []struct {
		old, new   string
		what, name string
		kind       Kind
		detail     string
	}{
		{"limit: 20/1m", "limit: 10/1m", "rule", "per-user", Tightened, "limit: 20/1m → 10/1m"},
		{"limit: 20/1m", "limit: 20/30s", "rule", "per-user", Loosened, "limit: 20/1m → 20/30s"},
		{"limit: 20/1m", "limit: unlimited", "rule", "per-user", Loosened, "limit: 20/1m → unlimited"},
		{"limit: 20/1m", "limits: [20/1m, 100/1h]", "rule", "per-user", Tightened, "limit: none → 100/1h"},
		{"limit: 20/1m", "limit: { count: 40, per: 1m, burst: 5 }", "rule", "per-user", Changed,
			"limit: 20/1m → 40/1m burst 5"},
		{"burst: 20", "burst: 30", "rule", "search", Loosened, "limit: 10/1m burst 20 → 10/1m burst 30"},
		{"limit: 20/1m", "limit: { count: 20, per: 1m, algorithm: sliding_window }", "rule", "per-user", Changed,
			"limit: 20/1m → 20/1m sliding_window"},
		{"limit: 20/1m", "limit: 20/1m, cost: 3", "rule", "per-user", Tightened, "cost: by request → 3"},
		{"limit: 20/1m", "limit: 20/1m, cost: 1", "rule", "per-user", Changed, "cost: by request → 1"},
		{"limit: 20/1m", "limit: 20/1m, priority: 7", "rule", "per-user", Changed, "priority: 100 → 7"},
		{"limit: 20/1m", "limit: 20/1m, enabled: false", "rule", "per-user", Loosened, "disabled: none → true"},
		{"action: allow", "action: allow, enabled: false", "rule", "office", Tightened, "disabled: none → true"},
		{"limit: 20/1m", "limit: 20/1m, action: log_only", "rule", "per-user", Shadowed, "action: reject → log_only"},
		{"limit: 100/1s, action: log_only", "limit: 100/1s", "rule", "trial", Enforced, "action: log_only → reject"},
		{"limit: 20/1m", "limit: 20/1m, action: throttle, max_delay: 1s", "rule", "per-user", Loosened,
			"action: reject → throttle"},
		{"limit: 20/1m", "limit: 20/1m, penalty: { threshold: 3, detection_window: 10m, cool_down: 1m }", "rule",
			"per-user", Tightened, "penalty: none → {"},
		{"limit: 20/1m", "limit: 20/1m, response: { status: 503 }", "rule", "per-user", Changed,
			"response: none → {status: 503}"},
		{"limit: 20/1m", "limit: 20/1m, on_failure: closed", "rule", "per-user", Changed, "on_failure: none → closed"},
		{"users: [mallory]", "users: [mallory, trudy]", "rule", "abuse", Tightened,
			"match.users: mallory → mallory trudy"},
		{`"203.0.113.0/24"`, `"203.0.113.0/24", "198.51.100.0/24"`, "rule", "office", Loosened,
			"match.cidrs: 203.0.113.0/24 → 198.51.100.0/24 203.0.113.0/24"},
		{"203.0.113.0/24", "203.0.113.0/25", "rule", "office", Tightened,
			"match.cidrs: 203.0.113.0/24 → 203.0.113.0/25"},
		{", methods: [POST]", "", "rule", "search", Tightened, "match.methods: POST → none"},
		{"name: trial", "name: renamed", "rule", "renamed", Added, "log_only by global 100/1s"},
		{"name: trial", "name: renamed", "rule", "trial", Removed, "log_only by global 100/1s"},
		{"[100/1m]", "[50/1m]", "user", "carol", Tightened, "limit: 100/1m → 50/1m"},
		{"tier: gold", "tier: silver", "user", "carol", Changed, "tier: gold → silver"},
		{"carol:", "dave:", "user", "carol", Removed, "tier gold, 100/1m"},
		{"requests_per_unit: 5", "requests_per_unit: 6", "node", "route=login / user", Loosened,
			"limit: 5/1h fixed_window → 6/1h fixed_window"},
		{"      - key: user", "      - key: user\n        shadow_mode: true", "node", "route=login / user", Shadowed,
			"shadow: none → true"},
		{"value: login", "value: logout", "node", "route=login", Removed, "no limit"},
		{"cost: 2", "cost: 3", "costs", "", Changed, "+ 3 for endpoints /search"},
		{"domain: shop", "domain: shop\nheaders: ietf", "settings", "", Changed, "ietf"},
		{"domain: shop", "domain: store", "domain", "", Removed, ""},
		{"limit: 20/1m", "limit: 20/1m, lease: false", "rule", "per-user", Changed, "lease: none → "},
		{"requests_per_unit: 5", "requests_per_unit: 5, name: logins", "node", "route=login / user", Changed,
			"limit's name: none → logins"},
		{"value: login", "value: login\n    detailed_metric: true", "node", "route=login", Changed,
			"detailed_metric: none → true"},
		{"name: trial, scope: global", "name: trial, scope: [user, endpoint]", "rule", "trial", Changed,
			"scope: global → user+endpoint"},
	} {
		d := compare(t, c.old, c.new)
		found := slices.ContainsFunc(d.Changes, func(one Change) bool {
			return one.What == c.what && one.Name == c.name && one.Kind == c.kind &&
				strings.Contains(strings.Join(one.Details, "\n"), c.detail)
		})
		if !found {
			t.Errorf("%s → %s: want %s %s %s (%s), got %+v", c.old, c.new, c.kind, c.what, c.name, c.detail, d.Changes)
		}
	}
}

func TestTheSameRulesDoNotDiffer(t *testing.T) {
	if d := compare(t); !d.Empty() {
		t.Errorf("the same rules differ: %+v", d)
	}
}

func TestDisplacedRulesAreReported(t *testing.T) {
	wide := "action: block }\n  - { name: wide, scope: user, match: { endpoints: [\"/search\"], methods: [POST] }, " +
		"priority: 1, limit: 5/1m }"
	d := compare(t, "action: block }", wide)
	kinds := map[string]Kind{}
	for _, c := range d.Changes {
		kinds[c.Name] = c.Kind
	}
	if kinds["search"] != Displaced || kinds["wide"] != Added {
		t.Errorf("search is displaced by wide: %+v", d.Changes)
	}
	back := compared(t, load(t, strings.Replace(shop, "action: block }", wide, 1)), load(t, shop))
	if !slices.ContainsFunc(back.Changes, func(c Change) bool { return c.Name == "search" && c.Kind == Reached }) {
		t.Errorf("search applies again: %+v", back.Changes)
	}
}

// TestWhoIsTreatedDifferently finds those whom a change concerns, and none else.
func TestWhoIsTreatedDifferently(t *testing.T) {
	for _, c := range []struct {
		old, new string
		want     []string
	}{
		{"limit: 20/1m", "limit: 10/1m", []string{
			"any other user, any other user of tier gold, any other user of any other tenant: GET any other path, " +
				"POST any other path, GET /search: per-user 20/1m → per-user 10/1m",
			"descriptor (route=login, user=any): its descriptor: per-user 20/1m → per-user 10/1m",
		}},
		{"users: [mallory]", "users: [mallory, trudy]", []string{"user trudy: any request: limited by rules → " +
			"blocked by abuse"}},
		{"cidrs: [\"203.0.113.0/24\"]", "cidrs: [\"203.0.113.0/25\"]", []string{
			"the last address of 203.0.113.0/24: any request: exempt by office → limited by rules",
		}},
		{"cidrs: [\"203.0.113.0/24\"]", "cidrs: [\"198.51.100.0/24\"]", []string{
			"the first address of 198.51.100.0/24, the last address of 198.51.100.0/24: any request: limited by " +
				"rules → exempt by office",
			"the first address of 203.0.113.0/24, the last address of 203.0.113.0/24: any request: exempt by office " +
				"→ limited by rules",
		}},
		{"cost: 2", "cost: 5", []string{
			"any other address: GET /search, POST /search: trial 100/1s (only logged) at cost 2 → trial 100/1s " +
				"(only logged) at cost 5",
			"any other user, any other user of tier gold, any other user of any other tenant: GET /search: per-user " +
				"20/1m at cost 2, trial 100/1s (only logged) at cost 2 → per-user 20/1m at cost 5, trial 100/1s " +
				"(only logged) at cost 5",
			"any other user, user carol, any other user of tier gold, any other user of any other tenant: POST " +
				"/search: search 10/1m burst 20 at cost 2, trial 100/1s (only logged) at cost 2 → search 10/1m " +
				"burst 20 at cost 5, trial 100/1s (only logged) at cost 5",
			"user carol: GET /search: trial 100/1s (only logged) at cost 2, user carol 100/1m at cost 2 → trial " +
				"100/1s (only logged) at cost 5, user carol 100/1m at cost 5",
		}},
		{"requests_per_unit: 5", "requests_per_unit: 6", []string{
			"descriptor (route=login, user=any): its descriptor: route_login.user 5/1h fixed_window → " +
				"route_login.user 6/1h fixed_window",
		}},
		{"[100/1m]", "[50/1m]", []string{"user carol: GET any other path, POST any other path, GET /search: user " +
			"carol 100/1m → user carol 50/1m"}},
	} {
		got := []string{}
		for _, tr := range compare(t, c.old, c.new).Treated {
			got = append(got, strings.Join(tr.Who, ", ")+": "+strings.Join(tr.Requests, ", ")+": "+tr.Was+" → "+tr.Is)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s → %s (-want +got):\n%s", c.old, c.new, diff)
		}
	}
}

func TestTextOfADifference(t *testing.T) {
	var text strings.Builder
	d := compare(t, "limit: 20/1m", "limit: 10/1m")
	d.Changes[0].File = "new.yaml"
	d.WriteText(&text)
	for _, want := range []string{"Domain shop\n  tightened  rule per-user (new.yaml:5)\n" +
		"             limit: 20/1m → 10/1m\n", "Treated differently\n",
		"    - per-user 20/1m\n    + per-user 10/1m\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	text.Reset()
	compare(t).WriteText(&text)
	if text.String() != "No difference.\n" {
		t.Errorf("no difference is written %q", text.String())
	}
}

// TestWhatChangesATreatment makes changes that leave the name and the amount of a limit as they are.
func TestWhatChangesATreatment(t *testing.T) {
	const rule = "domain: s\nrules:\n  - { name: r, scope: user, limit: 5/1m }\n"
	keys := `domain: s
identity: { api_keys: { header: k, keys: [{ id: ci, sha256: "` + strings.Repeat("ab", 32) +
		`", user: bot, tier: free }] } }
rules:
  - { name: free, scope: user, match: { tiers: [free] }, limit: 5/1m }
  - { name: pro, scope: user, match: { tiers: [pro] }, limit: 500/1m }
`
	for _, c := range []struct{ text, old, new, was, is string }{
		{rule, "scope: user", "scope: [user, endpoint]", "r 5/1m by user", "r 5/1m by user+endpoint"},
		{rule, "5/1m }", "5/1m, penalty: { threshold: 1, detection_window: 1h, cool_down: 1d } }", "r 5/1m by user",
			"r 5/1m by user, penalty 24h after 1 in 1h, times [1]"},
		{rule, "domain: s", "domain: s\npenalty: { cool_down: 1d }", "nothing", "the domain's penalty"},
		{keys, "tier: free }]", "tier: pro }]", "free 5/1m", "pro 500/1m"},
		{keys, "tier: free }]", "tier: free, revoked: true }]", "free 5/1m", "nothing"},
	} {
		d := compared(t, load(t, c.text), load(t, strings.Replace(c.text, c.old, c.new, 1)))
		if len(d.Treated) == 0 || d.Treated[0].Was != c.was || d.Treated[0].Is != c.is {
			t.Errorf("%s → %s: want %s → %s, got %+v", c.old, c.new, c.was, c.is, d.Treated)
		}
	}
}

// TestEntriesAreNeededTogether changes how many entries a request needs for a rule to be about it.
func TestEntriesAreNeededTogether(t *testing.T) {
	const one, two = "entries: { a: x }", "entries: { a: x, b: y }"
	text := func(entries string) string {
		return "domain: s\nrules:\n  - { name: r, scope: user, match: { " + entries + " }, limit: 5/1m }\n"
	}
	for _, c := range []struct {
		old, new string
		kind     Kind
	}{{one, two, Loosened}, {two, one, Tightened}, {one, "entries: { b: y }", Changed}} {
		d := compared(t, load(t, text(c.old)), load(t, text(c.new)))
		if len(d.Changes) != 1 || d.Changes[0].Kind != c.kind {
			t.Errorf("%s → %s: want %s, got %+v", c.old, c.new, c.kind, d.Changes)
		}
	}
}

// TestANamedLimitMayMove puts two limits of a rule into another order.
func TestANamedLimitMayMove(t *testing.T) {
	text := func(limits string) string {
		return "domain: s\nrules:\n  - { name: r, scope: user, limits: [" + limits + "] }\n"
	}
	const second, hour = "{ name: second, count: 10, per: 1s }", "{ name: hour, count: 100, per: 1h }"
	d := compared(t, load(t, text(second+", "+hour)), load(t, text(hour+", "+strings.Replace(second, "10", "20", 1))))
	if len(d.Changes) != 1 || d.Changes[0].Kind != Loosened || len(d.Changes[0].Details) != 1 {
		t.Errorf("want one limit that is loosened, got %+v", d.Changes)
	}
}

// TestDisplacedRulesAreThoseOfADomain displaces a rule whose namesake in another domain was displaced before.
func TestDisplacedRulesAreThoseOfADomain(t *testing.T) {
	domain := func(name, rules string) rules.Load { return load(t, "domain: "+name+"\nrules:\n"+rules) }
	const strict, wide = "  - { name: strict, scope: user, limit: 1/1m }\n",
		"  - { name: wide, scope: user, priority: 1, limit: 9/1m }\n"
	d := &Diff{}
	old := domain("one", wide+strict).Problems
	d.displaced(old, append(slices.Clone(old), domain("two", wide+strict).Problems...))
	if len(d.Changes) != 1 || d.Changes[0].Domain != "two" || d.Changes[0].Kind != Displaced {
		t.Errorf("want rule strict of domain two, got %+v", d.Changes)
	}
}

// TestAnIncompleteTrySaysSo compares rules that name more clients than are tried, where only the last of them differs.
func TestAnIncompleteTrySaysSo(t *testing.T) {
	text := "domain: s\nusers:\n"
	for i := range maxClients + 100 {
		text += fmt.Sprintf("  u%05d: { limits: [7/1m] }\n", i)
	}
	at := strings.LastIndex(text, "7/1m")
	d := compared(t, load(t, text), load(t, text[:at]+"0/1m"+text[at+4:]))
	var b strings.Builder
	d.WriteText(&b)
	for _, want := range []string{"No client that was tried is treated differently.",
		"more clients and requests than were tried"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q: %s", want, b.String())
		}
	}
}

// TestRatesAreComparedExactly holds limits of the same room against each other, whose rates are very low, very high or
// the same.
func TestRatesAreComparedExactly(t *testing.T) {
	for _, c := range []struct {
		old, new string
		kind     Kind
	}{
		{"count: 1, per: 720h", "count: 1, per: 360h", Loosened},
		{"count: 1, per: 360h", "count: 1, per: 720h", Tightened},
		{"count: 999999999999, per: 1s", "count: 1000000000000, per: 1s", Loosened},
		{"count: 60, per: 1m", "count: 1, per: 1s", Changed},
	} {
		text := func(l string) string {
			return "domain: shop\nrules:\n  - { name: r, scope: user, limit: { " + l + ", burst: 5 } }\n"
		}
		d := compared(t, load(t, text(c.old)), load(t, text(c.new)))
		if len(d.Changes) != 1 || d.Changes[0].Kind != c.kind {
			t.Errorf("%s → %s: want %s, got %+v", c.old, c.new, c.kind, d.Changes)
		}
	}
}

// compared compares two sets.
func compared(t *testing.T, old, new rules.Load) *Diff {
	t.Helper()
	d := must.Get(Compare(t.Context(), old, new))(t)
	return d
}

// lateEnd is a context that ends when it was looked at so often.
type lateEnd struct {
	context.Context
	left, looks int
}

// Err counts.
func (c *lateEnd) Err() error {
	c.looks++
	if c.looks > c.left {
		return context.Canceled
	}
	return nil
}

// TestACompareEndsWithItsCaller ends the context before the first request is tried, between requests, and between
// descriptors of a tree. No more is tried.
func TestACompareEndsWithItsCaller(t *testing.T) {
	nodes := "descriptors:\n"
	for n := range 50 {
		nodes += fmt.Sprintf("  - { key: k%d, value: v, rate_limit: { unit: minute, requests_per_unit: 5 } }\n", n)
	}
	text := strings.Replace(shop, "descriptors:\n", nodes, 1)
	old, new := load(t, text), load(t, strings.ReplaceAll(text, "_unit: 5", "_unit: 6"))
	whole := &lateEnd{Context: t.Context(), left: math.MaxInt}
	_, err := Compare(whole, old, new)
	if err != nil || whole.looks < 60 {
		t.Fatalf("a comparison looks %d times whether it has to end: %v", whole.looks, err)
	}
	for _, left := range []int{0, 5, whole.looks - 30} {
		ctx := &lateEnd{Context: t.Context(), left: left}
		d, err := Compare(ctx, old, new)
		if d != nil || !errors.Is(err, context.Canceled) || ctx.looks != left+1 {
			t.Errorf("ended after %d looks: %v, %v after %d", left, d, err, ctx.looks)
		}
	}
}
