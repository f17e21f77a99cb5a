package ruletest

import (
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/whatif"
)

// result runs a text as if it were beside the rules in testdata.
func result(t *testing.T, text string) *Result {
	t.Helper()
	f := must.Get(Parse("testdata/test.yaml", []byte(text)))(t)
	r := must.Get(Run(f))(t)
	return r
}

// differences runs one test and returns what each failure differs in.
func differences(t *testing.T, requests string) []Difference {
	t.Helper()
	var all []Difference
	for _, f := range result(t, "rules: rules.yaml\ntests:\n  - requests:\n"+requests).Tests[0].Failures {
		all = append(all, f.Differs...)
	}
	return all
}

// TestEveryWantCanFail asks for the wrong thing of each kind, and for the right one.
func TestEveryWantCanFail(t *testing.T) {
	spent := "      - { times: 2, http: { path: /, user: alice }, want: admitted }\n"
	refused := spent + "      - { http: { path: /, user: alice }, want: { "
	for _, c := range []struct{ requests, right, what, wrong, got string }{
		{refused, "verdict: refused", "verdict", "admitted", "refused"},
		{refused, "verdict: refused", "verdict", "blocked", "refused"},
		{refused, "by: per-user", "by", "slow", "per-user"},
		{refused, "remaining: 0", "remaining", "1", "0"},
		{refused, "retry_after: 30s", "retry_after", "29s", "30s"},
		{refused, "status: 429", "status", "403", "429"},
		{refused, "message: Slow down.", "message", "Stop.", "Slow down."},
		{refused, "counts: [per-user]", "counts", "[]", "[per-user]"},
		{refused, "shadow: [trial]", "shadow", "[]", "[trial]"},
		{refused, "cost: 1", "cost", "2", "1"},
		{"      - { http: { path: /, user: mallory }, want: { ", "verdict: blocked", "retry_after", "2m", "1m"},
		{"      - { at: 61s, http: { path: /, user: mallory }, want: { ", "verdict: admitted", "remaining", "2", "1"},
		{"      - { http: { path: /, peer: 203.0.113.9 }, want: { ", "verdict: exempt", "by", "abuse", "office"},
		{"      - { http: { path: / }, want: { ", "verdict: admitted", "remaining", "3", "no limit"},
		{"      - { http: { path: /slow, user: bob }, want: admitted }\n" +
			"      - { http: { path: /slow, user: bob }, want: { ", "waits: 1s", "waits", "0s", "1s"},
	} {
		if got := differences(t, c.requests+c.right+" } }\n"); len(got) > 0 {
			t.Errorf("want %s: %v", c.right, got)
		}
		want := []Difference{{c.what, c.wrong, c.got}}
		if diff := cmp.Diff(want, differences(t, c.requests+c.what+": "+c.wrong+" } }\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
}

// TestTimePassesOnTheTestsClock: a month passes at once, and each test begins with nothing counted.
func TestTimePassesOnTheTestsClock(t *testing.T) {
	r := result(t, `
rules: [rules.yaml]
tests:
  - name: first
    start: 2026-03-01T12:00:00+01:00
    requests:
      - { times: 2, descriptors: [{ user: alice }], want: admitted }
      - { descriptors: [{ user: alice }], want: refused }
      - { at: 29s, descriptors: [{ user: alice }], want: refused }
      - { at: 30s, descriptors: [{ user: alice }], want: { verdict: admitted, remaining: 0 } }
      - { at: 30d, times: 3, every: 30s, descriptors: [{ user: alice }], want: { verdict: admitted, remaining: 1 } }
  - name: second
    requests:
      - { descriptors: [{ user: alice }], want: { verdict: admitted, remaining: 1 } }
`)
	if r.Failed() != 0 {
		var text strings.Builder
		r.WriteText(&text, false)
		t.Error(text.String())
	}
	if r.Tests[0].Requests != 8 {
		t.Errorf("%d requests were sent, want 8", r.Tests[0].Requests)
	}
}

func TestFailureIsReadable(t *testing.T) {
	r := result(t, `rules: rules.yaml
tests:
  - name: three at once
    requests:
      - { at: 1m30s, times: 3, http: { path: /, user: alice }, want: { verdict: admitted, by: per-user } }
  - name: fine
    requests:
      - { http: { path: / }, want: admitted }
`)
	var text strings.Builder
	r.WriteText(&text, true)
	want := `FAIL  testdata/test.yaml:3: three at once
  testdata/test.yaml:5: at 1m30s, number 3 of 3: GET / user alice
    - verdict: admitted
    + verdict: refused
    got: refused by per-user (testdata/rules.yaml:3), 0 of 2 left on per-user, retry after 30s, counted by [per-user]
ok    testdata/test.yaml:6: fine (requests: 1)
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Failed() != 1 {
		t.Errorf("%d tests failed, want 1", r.Failed())
	}
}

// TestAnEntryThatTheRulesDoNotRead is named where a request with it fails, with the nearest one that they read.
func TestAnEntryThatTheRulesDoNotRead(t *testing.T) {
	for request, want := range map[string]string{
		"{ times: 3, descriptors: [{ usr: alice }], want: { by: per-user } }": `the rules do not read the entry ` +
			`"usr"; did ` +
			`you mean "user"?`,
		"{ descriptors: [{ user: alice, zzz: x }], want: refused }":   `the rules do not read the entry "zzz"`,
		"{ descriptors: [{ user: alice, path: /x }], want: refused }": "",
		"{ http: { path: / }, want: refused }":                        "",
	} {
		r := result(t, strings.Replace(one(request), "r.yaml", "rules.yaml", 1))
		if len(r.Tests[0].Failures) != 1 || r.Tests[0].Failures[0].Hint != want {
			t.Errorf("%s: %+v, want the hint %q", request, r.Tests[0].Failures, want)
		}
		var text strings.Builder
		r.WriteText(&text, false)
		if strings.Contains(text.String(), "    hint: "+want+"\n") != (want != "") {
			t.Errorf("%s is reported as:\n%s", request, &text)
		}
	}
}

// TestBadFiles: everything that is wrong is listed at once, with its line.
func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"tests: []", "t.yaml:1: rules is missing"},
		{"rules: r.yaml\n", "t.yaml:1: tests is missing"},
		{"rules: r.yaml\ntests:\n  - name: x\n", "t.yaml:3: test \"x\" needs requests"},
		{"rule: r.yaml", `t.yaml:1:1: unknown key "rule": did you mean "rules"?`},
		{"rules: r.yaml\ntests:\n  - requests:\n      - { http: { path: /, pear: x }, want: admitted }",
			`t.yaml:4:28: unknown key "pear": did you mean "peer"?`},
		{"- a", "t.yaml:1:1: a mapping with some of rules, merge_domains, tests is wanted here"},
		{"rules: [", "t.yaml:1: did not find expected node content"},
		{one("{ want: admitted }"), "t.yaml:4: a request has either http or descriptors"},
		{one("{ http: { path: / }, descriptors: [{a: b}], want: admitted }"),
			"t.yaml:4: a request has either http or descriptors"},
		{one("{ http: { method: GET }, want: admitted }"), "t.yaml:4: http needs a path"},
		{one("{ http: { path: / } }"), "t.yaml:4: want is missing"},
		{one("{ http: { path: / }, want: allow }"), `t.yaml:4:36: "allow" is not a verdict: did you mean "allowed"?`},
		{one("{ http: { path: / }, times: -1, want: admitted }"), "t.yaml:4: times is from 1 to 1000000"},
		{one("{ http: { path: / }, times: many, want: admitted }"),
			`t.yaml:4:37: this wants a whole number, not "many"`},
		{one("{ http: { path: / }, at: soon, want: admitted }"),
			`t.yaml:4:34: a duration is like 250ms, 3s, 1m, 1h or 7d, not "soon"`},
		{one("{ http: { path: / }, at: -1s, want: admitted }"), "t.yaml:4: at -1s is before the request above it"},
		{one("{ http: { path: / }, every: -1s, want: admitted }"), "t.yaml:4: every is not below 0"},
		{one("{ http: { path: / }, hits: 3, want: admitted }"), "t.yaml:4: hits and refund are for descriptors"},
		{one("{ descriptors: [{a: b}], refund: true, hits: 0, want: admitted }"),
			"t.yaml:4: a refund of 0 hits gives nothing back"},
		{one("{ descriptors: [[a]], want: admitted }"), "t.yaml:4:25: a descriptor is a mapping"},
		{one("{ descriptors: [{a: [b]}], want: admitted }"), `t.yaml:4:29: the entry "a" wants a text`},
		{one("{ descriptors: [{key: user, value: alice}], want: admitted }"),
			"t.yaml:4:25: an entry is written as its key and its value: {user: alice}"},
		{one("{ descriptors: [{entries: [{key: user, value: alice}]}], want: admitted }"),
			`t.yaml:4:35: the entry "entries" wants a text: write the entries themselves, as in {user: alice,`},
		{one("{ descriptors: {a: b}, want: admitted }"), "t.yaml:4:24: this wants a list, not a mapping"},
		{"rules: r.yaml\ntests:\n  - start: noon\n    requests: []",
			`t.yaml:3:12: an instant is like 2026-01-01T00:00:00Z, not "noon"`},
		{"rules: r.yaml\nrules: s.yaml", `t.yaml:2:1: the key "rules" is there twice`},
	} {
		_, err := Parse("t.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		}
	}
	_, err := Parse("t.yaml", []byte(one("{ htp: x, want: allow, at: soon }")))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three mistakes are %v", err)
	}
}

// one is a file with one request.
func one(request string) string {
	return "rules: r.yaml\ntests:\n  - requests:\n      - " + request
}

func TestRulesThatDoNotLoad(t *testing.T) {
	folder := t.TempDir()
	must.Do(t, os.WriteFile(folder+"/r.yaml",
		[]byte("domain: shop\nrules:\n  - { name: a, scop: user, limit: 1/1m }\n"+
			"  - { name: b, scope: user, limit: 1/0s }\n"), 0o644))
	f := must.Get(Parse(folder+"/t.yaml", []byte(one("{ http: { path: / }, want: admitted }"))))(t)
	_, err := Run(f)
	var unloadable *whatif.Unloadable
	if !errors.As(err, &unloadable) || !strings.Contains(err.Error(), `unknown key "scop"`) ||
		!strings.Contains(err.Error(), "r.yaml:4:") {
		t.Errorf("two problems of the rules are: %v", err)
	}
	f.Rules, f.Path = []string{"rules.yaml"}, "testdata/t.yaml"
	f.Tests[0].Domain = "edge"
	_, err = Run(f)
	if err == nil || !strings.Contains(err.Error(), `the rules have no domain "edge": name one of ["shop"]`) {
		t.Errorf("an unknown domain is: %v", err)
	}
	_, err = Read(folder + "/none.yaml")
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there is: %v", err)
	}
}

func TestDurationIsShort(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", time.Hour: "1h",
		90 * time.Second: "1m30s", 24 * time.Hour: "24h", 20 * time.Minute: "20m", 1500 * time.Millisecond: "1.5s"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

// FuzzParse: no text makes the reader of tests fail otherwise than by an error.
func FuzzParse(f *testing.F) {
	f.Add(one("{ http: { path: /, headers: { a: [b, c] } }, at: 1s, want: { verdict: refused, remaining: 0 } }"))
	f.Add(one("{ descriptors: [{a: b}], want: admitted }"))
	f.Add("rules: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse("t.yaml", []byte(text))
		if err != nil && err.Error() == "" {
			t.Error("an error is empty")
		}
	})
}

// TestPageExplainsEveryKey: docs/guides/test-rules.md lists each key of a file of tests.
func TestPageExplainsEveryKey(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/guides/test-rules.md"))(t)
	for _, of := range []any{File{}, Test{}, Request{}, HTTP{}, Want{}} {
		for _, key := range keysOf(reflect.TypeOf(of)) {
			if !regexp.MustCompile("(?m)^- [^:]*`" + key + "`[^:]*: ").Match(text) {
				t.Errorf("docs/guides/test-rules.md does not explain %s", key)
			}
		}
	}
}
