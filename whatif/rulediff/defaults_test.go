package rulediff

import (
	"slices"
	"strings"
	"testing"
)

// TestDefaultsAreComparedAsARule changes the limit of what nothing else limits. The rule search precedes it.
func TestDefaultsAreComparedAsARule(t *testing.T) {
	const defaults = "defaults: { scope: ip, limit: 100/1m }\n"
	text := func(defaults string) string {
		return "domain: s\n" + defaults +
			"rules:\n  - { name: search, scope: user, match: { endpoints: [\"/search\"] }, limit: 10/1m }\n"
	}
	for _, c := range []struct {
		old, new string
		kind     Kind
		detail   string
		was, is  string
	}{
		{"", defaults, Added, "reject by ip 100/1m", "nothing", "default 100/1m"},
		{defaults, "", Removed, "reject by ip 100/1m", "default 100/1m", "nothing"},
		{defaults, strings.Replace(defaults, "100/1m", "10/1m", 1), Tightened, "limit: 100/1m → 10/1m",
			"default 100/1m", "default 10/1m"},
		{defaults, strings.Replace(defaults, "100/1m", "1000/1m", 1), Loosened, "limit: 100/1m → 1000/1m",
			"default 100/1m", "default 1000/1m"},
		{defaults, strings.Replace(defaults, "scope: ip", "scope: client", 1), Changed, "scope: ip → client",
			"default 100/1m by ip", "default 100/1m by client"},
		{defaults, strings.Replace(defaults, "limit", "on_failure: closed, limit", 1), Changed,
			"on_failure: none → closed", "", ""},
	} {
		d := compared(t, load(t, text(c.old)), load(t, text(c.new)))
		if len(d.Changes) != 1 || d.Changes[0].What != "rule" || d.Changes[0].Name != "default" ||
			d.Changes[0].Kind != c.kind || !slices.Contains(d.Changes[0].Details, c.detail) {
			t.Errorf("%q → %q: want rule default %s (%s), got %+v", c.old, c.new, c.kind, c.detail, d.Changes)
		}
		if c.was == "" {
			continue
		}
		guest := slices.ContainsFunc(d.Treated, func(one Treatment) bool {
			return slices.Contains(one.Who, "any other address") && one.Was == c.was && one.Is == c.is
		})
		user := slices.ContainsFunc(d.Treated, func(one Treatment) bool {
			return slices.Contains(one.Who, "any other user") && slices.Contains(one.Requests, "GET /search")
		})
		if !guest || user {
			t.Errorf("%q → %q: want %s → %s for any address, and no user's search, got %+v", c.old, c.new, c.was, c.is,
				d.Treated)
		}
	}
}
