package main

import (
	"strings"
	"testing"
)

// TestColourNeedsATerminal: NO_COLOR and TERM=dumb turn it off there, CLICOLOR_FORCE on in a pipeline.
func TestColourNeedsATerminal(t *testing.T) {
	terminal := openTerminal(t)
	pipeline := &strings.Builder{}
	for _, c := range []struct {
		no, term, force string
		terminal, pipe  bool
	}{
		{"", "xterm", "", true, false},
		{"1", "xterm", "", false, false},
		{"", "dumb", "", false, false},
		{"", "xterm", "0", true, false},
		{"", "dumb", "1", true, true},
		{"1", "xterm", "1", false, false},
	} {
		t.Setenv("NO_COLOR", c.no)
		t.Setenv("TERM", c.term)
		t.Setenv("CLICOLOR_FORCE", c.force)
		if coloured(terminal) != c.terminal || coloured(pipeline) != c.pipe {
			t.Errorf("%+v: %v on a terminal, %v in a pipeline", c, coloured(terminal), coloured(pipeline))
		}
	}
}

// TestWhatMattersIsColoured: problems, rules that differ, what is degraded, blocked or refused, and errors.
func TestWhatMattersIsColoured(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "1")
	server := answering(t, map[string]string{
		"/v1/sidecars":        `{"rules_agree":false,"rules":["a","b"],"sidecars":[{"id":"s","degraded":["redis: away"]}]}`,
		"/v1/explain":         `{"domain":"d","known":true,"verdict":{"outcome":"refused","status":429}}`,
		"/v1/domains/d/users": `{"users":[{"name":"ann","blocked":true}]}`,
	})
	for line, want := range map[string]string{
		"lint " + write(t, "bad.yaml", badRules):   red + "error:" + usual + ` unknown key "scop"`,
		"lint " + write(t, "warn.yaml", warnRules): yellow + "warning:" + usual,
		"sidecars list":         "their rules " + red + "DIFFER" + usual,
		"sidecars list -o wide": red + "redis: away" + usual,
		"explain /":             red + "refused" + usual + " (429)",
		"users list --domain d": red + "for ever" + usual,
		"tiers show x --domain": red + "spillway:" + usual,
	} {
		got := call("", append(strings.Fields(line), "--server", server, "--control", server)...)
		if !strings.Contains(got.out+got.errors, want) {
			t.Errorf("spillway %s: %q is missing: %q", line, want, got.out+got.errors)
		}
	}
}
