package rules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOneMistakeHidesNoOther: what is left out because it is broken still has its name and its scope checked.
func TestOneMistakeHidesNoOther(t *testing.T) {
	text := "domain: d\nrules:\n" +
		"  - name: a\n    limit: 5/1x\n" +
		"  - { name: a, scope: user, limit: 5/1m, priority: high }\n" +
		"  - { name: b, limit: 5/1m, action: allow, cost: 0 }\n" +
		"  - { name: \"c\\n\", limit: 5/1m }\n" +
		"  - d\n"
	load := new(Files).compile([]source{{path: "a.yaml", text: []byte(text)}}, nil)
	want := []string{
		`3:5: rule "a" has a limit and no scope: add scope: global, tenant, user, ip, endpoint, client, api_key or ` +
			`tier, or a list`,
		`4:12: limit: "1x" must be a duration: a whole number and a unit of ms, s, m, h or d, such as 250ms, 1m ` +
			`or 7d`,
		`5:5: duplicate rule name "a", which a.yaml:3:5 has already: rename one of them`,
		`5:52: priority wants a whole number, not the text "high"`,
		`6:50: cost is 0; it must be between 1 and 9007199254740992`,
		`7:13: name has control characters, such as a line break; remove them`,
		`8:5: an item of rules wants a map, not the text "d"`,
	}
	if diff := cmp.Diff(want, brief(load.Problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if load.Set != nil {
		t.Error("broken rules were compiled")
	}
}
