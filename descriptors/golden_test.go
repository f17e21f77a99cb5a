package descriptors

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

var update = flag.Bool("update", false, "write what the golden cases come to into their files")

// TestGolden holds what requests come to against testdata/golden. A case is a block of lines: "# name", then the
// configuration (see configure in script_test.go), then requests with what each comes to ("= …"): "> …" comes over RLS,
// "authz> …" over ext_authz, and "both> …" over either, to the same charges.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	cases, doors := 0, map[string]int{}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		var out []string
		for _, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
			name, _, _ := strings.Cut(strings.TrimPrefix(block, "# "), "\n")
			got := block
			t.Run(filepath.Base(file)+"/"+name, func(t *testing.T) {
				got = runGolden(t, block)
				if diff := cmp.Diff(block, got); diff != "" && !*update {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
			out = append(out, got)
			cases++
			for _, door := range []string{"> ", "authz> ", "both> "} {
				doors[door] += strings.Count(block, "\n"+door)
			}
		}
		if *update {
			must.Do(t, os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644))
		}
	}
	if cases < 140 {
		t.Errorf("%d golden cases, want at least 140", cases)
	}
	if doors["authz> "] < 75 || doors["both> "] < 100 || doors["> "] < 200 {
		t.Errorf("requests by door: %v, want at least 75 over ext_authz, 100 over both and 200 over RLS", doors)
	}
}

// runGolden returns the block with what its requests really come to.
func runGolden(t *testing.T, block string) string {
	t.Helper()
	s := script{domain: Domain{Name: "shop", ChargeDenied: true}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var set *Set
	var m Match
	var out []string
	for _, line := range strings.Split(block, "\n") {
		if strings.HasPrefix(line, "= ") {
			continue
		}
		out = append(out, line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if !strings.HasSuffix(words[0], ">") {
			s.configure(t, words)
			continue
		}
		if set == nil {
			set = s.compile(t)
		}
		for _, outcome := range runRequest(t, set, &m, words) {
			out = append(out, "= "+outcome)
		}
	}
	return strings.Join(out, "\n")
}

// runRequest returns what one line of a request comes to. Over both doors the charges must be the same; only where they
// are reported differs, which is left out.
func runRequest(t *testing.T, set *Set, m *Match, words []string) []string {
	t.Helper()
	match := func(req *Request) []string {
		if req.Subject != nil && req.Subject.Check() != nil {
			return []string{fmt.Sprintf("refused %d", req.Subject.Check().Status)}
		}
		set.Match(req, m)
		return describe(m)
	}
	switch words[0] {
	case ">":
		return match(parseRequest(t, words[1:]))
	case "authz>":
		return match(parseSubject(t, words[1:]))
	}
	authz := match(parseSubject(t, words[1:]))
	rls := match(parseRequest(t, asDescriptor(words[1:])))
	for i := range authz {
		authz[i] = strings.Replace(authz[i], " on -1", "", 1)
	}
	for i := range rls {
		rls[i] = strings.Replace(rls[i], " on 0", "", 1)
	}
	if diff := cmp.Diff(rls, authz); diff != "" {
		t.Errorf("%q: the doors differ (-RLS +ext_authz):\n%s", words, diff)
	}
	return authz
}

var opNames = map[limit.Op]string{limit.Spend: "spend", limit.Peek: "peek", limit.Refund: "refund",
	limit.Debit: "debit"}

// describe writes down a match, one line for each part of it.
func describe(m *Match) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if !m.Known {
		add("unknown domain")
	}
	if m.BadLimits > 0 {
		add("unreadable overrides %d", m.BadLimits)
	}
	if m.Block != nil {
		add("block %s: %s", m.Block.Rule, m.Block.Reason)
	}
	if m.Exempt != nil {
		add("allow %s", m.Exempt.Rule)
	}
	for _, term := range m.Unlimited {
		add("unlimited %s on %d", term.Effect.Rule, term.Descriptor)
	}
	for i, c := range m.Charges {
		add("%s", describeCharge(c, m.Terms[i]))
	}
	if len(out) == 0 {
		add("nothing")
	}
	return out
}

func describeCharge(c limit.Charge, term Term) string {
	text := fmt.Sprintf("%s on %d: %s %d of %d/%s", c.Key, term.Descriptor, opNames[c.Op], c.Cost, c.Limit.Count,
		c.Limit.Window)
	if c.Limit.Algorithm == limit.TokenBucket && c.Limit.Burst != c.Limit.Count {
		text += fmt.Sprintf(" burst %d", c.Limit.Burst)
	}
	text += fmt.Sprintf(" (%d %s)", term.Effect.Multiplier, term.Effect.Unit)
	text += [...]string{limit.Enforced: "", limit.Shadow: " shadow", limit.Quota: " quota"}[c.Mode]
	if c.Each {
		text += " each"
	}
	if c.MaxWait > 0 {
		text += fmt.Sprintf(" waits %s", c.MaxWait)
	}
	if c.Penalty != nil {
		text += fmt.Sprintf(" penalty %d in %s: %s %s", c.Penalty.Threshold, c.Penalty.Window, c.Penalty.CoolDown,
			c.PenaltyKey)
	}
	if term.Effect.Dynamic {
		text += " metric " + strings.Join(term.Metric, ".")
	}
	return text
}
