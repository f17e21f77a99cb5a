package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/whatif"
)

const examples = "../../examples/rules"

// TestMain keeps the contexts and variables of the machine away.
func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "spillway")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"XDG_CONFIG_HOME": folder, "SPILLWAY_SERVER": "", "SPILLWAY_CONTROL": "", "SPILLWAY_CONTEXT": "",
		"NO_COLOR": "", "CLICOLOR_FORCE": "",
	} {
		os.Setenv(name, value)
	}
	completeWithin = time.Minute // a busy machine completes late
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// outcome is what a call of the program prints and ends with.
type outcome struct {
	code        int
	out, errors string
}

func call(in string, args ...string) outcome {
	var out, diagnostics bytes.Buffer
	code := run(args, strings.NewReader(in), &out, &diagnostics)
	return outcome{code, out.String(), diagnostics.String()}
}

// write puts a text into a file of a folder of the test's own.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	err := os.WriteFile(path, []byte(text), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	goodRules = "domain: shop\nrules:\n  - { name: per-user, scope: user, limit: 1/1m }\n"
	badRules  = "domain: shop\nrules:\n  - { name: per-user, scop: user, limit: 1/1m }\n  - { name: b, scope: " +
		"user, limit: 1/0s }\n"
	warnRules = "domain: shop\nrules:\n  - { name: all, scope: user, match: { endpoints: ['^/api/.*$'] }, " +
		"limit: 1/1m }\n"
	goodLine = `{"start_time":"2026-03-01T00:00:00Z","method":"GET","path":"/","user":"alice"}` + "\n"
)

// TestExitCodes: each command has each of its codes, and prints why.
func TestExitCodes(t *testing.T) {
	good, bad, warn := write(t, "good.yaml", goodRules), write(t, "bad.yaml", badRules), write(t, "warn.yaml",
		warnRules)
	other := write(t, "other.yaml", strings.Replace(goodRules, "1/1m", "2/1m", 1))
	test := func(rules, want string) string {
		return write(t, "test.yaml",
			"rules: "+rules+"\ntests:\n  - requests:\n      - { http: { path: /, user: alice }, want: "+want+" }\n")
	}
	log, broken := write(t, "a.log", goodLine+goodLine), write(t, "b.log", goodLine+"broken\n")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitOK, "Exit codes:", nil},
		{exitOK, "spillway ", []string{"version"}},
		{exitOK, "spillway ", []string{"--version"}},
		{exitUsage, `unknown command "bake"`, []string{"bake"}},
		{exitUsage, "unknown flag: --colour", []string{"lint", "--colour", good}},
		{exitUsage, `version prints table, wide, json, yaml, not "html"`, []string{"version", "-o", "html"}},
		{exitUsage, "an argument is missing", []string{"lint"}},
		{exitOK, "0 problems, 0 warnings in 1 file", []string{"lint", good}},
		{exitFound, `bad.yaml:3:23: error: unknown key "scop"`, []string{"lint", bad}},
		{exitFound, "2 problems", []string{"lint", bad}},
		{exitOK, "1 warning", []string{"lint", warn}},
		{exitFound, "warn.yaml:3:", []string{"lint", "--strict", warn}},
		{exitFound, "duplicate domain", []string{"lint", good, warn}},
		{exitOK, "in 2 files", []string{"lint", "--merge-domains", good, warn}},
		{exitUsage, "no such file", []string{"lint", "none.yaml"}},
		{exitUsage, "too.yaml: no such file", []string{"lint", "none.yaml", "none-too.yaml"}},
		{exitOK, "1 test passed, 0 failed", []string{"test", test(good, "admitted")}},
		{exitFound, "    - verdict: refused\n    + verdict: allowed", []string{"test", test(good, "refused")}},
		{exitUsage, `"denied" is not a verdict`, []string{"test", test(good, "denied")}},
		{exitUsage, "no such file", []string{"test", "none.yaml"}},
		{exitUsage, "must hold files that end with .yaml or .yml", []string{"test", t.TempDir()}},
		{exitRules, `unknown key "scop"`, []string{"test", test(bad, "admitted")}},
		{exitOK, "No difference.", []string{"diff", good, good}},
		{exitFound, "limit: 1/1m → 2/1m", []string{"diff", good, other}},
		{exitRules, "bad.yaml:4:", []string{"diff", good, bad}},
		{exitUsage, "no such file", []string{"diff", good, "none.yaml"}},
		{exitUsage, "an argument is missing", []string{"diff", good}},
		{exitUsage, "a file and a version cannot be compared", []string{"rules", "diff", good, "@2"}},
		{exitOK, "0 problems", []string{"rule", "lint", good}},
		{exitUsage, "must be a user's name, or KIND/NAME", []string{"block", "192.0.2.7"}},
		{exitUsage, `--outcome is "refusd": there are allowed, refused, `, []string{"events", "list", "--outcome",
			"refusd"}},
		{exitUsage, `did you mean "refused"?`, []string{"archive", "query", "--archive", t.TempDir(), "--outcome",
			"refusd"}},
		{exitUsage, `did you mean "user"?`, []string{"audit", "list", "--kind", "usr"}},
		{exitUsage, `did you mean "minute"?`, []string{"usage", "list", "--step", "minutes"}},
		{exitUsage, `there are name, last-request`, []string{"users", "list", "--by", "size"}},
		{exitUsage, `did you mean "tenant"?`, []string{"counters", "list", "tennant/acme"}},
		{exitUsage, "without a terminal the command cannot ask", []string{"rules", "publish", good}},
		{exitUsage, `unknown context "none"`, []string{"top", "--context", "none"}},
		{exitOK, "1 of 2 requests refused", []string{"replay", "--rules", good, "--user", "user", log}},
		{exitOK, "1 newly admitted", []string{"replay", "--rules", good, "--against", other, "--user", "user", log}},
		{exitBroken, "the log has broken lines, which were skipped: 1", []string{"replay", "--rules", good, broken}},
		{exitBroken, "b.log:2: no known format", []string{"replay", "--rules", good, broken}},
		{exitFound, "--fail-if refused>49%: it is 1 of 2", []string{"replay", "--rules", good, "--fail-if",
			"refused>49%", log}},
		{exitOK, "1 of 2", []string{"replay", "--rules", good, "--fail-if", "refused > 50 %", "--fail-if", "refused>1",
			log}},
		{exitFound, "newly_refused>0", []string{"replay", "--rules", other, "--against", good, "--fail-if",
			"newly_refused>0", log}},
		{exitUsage, "no line has the field usr (user)", []string{"replay", "--rules", good, "--fail-if", "refused>50%",
			"--user", "usr", log}},
		{exitUsage, "no line has the field remote_addr (peer)", []string{"replay", "--rules", good, "--fail-if",
			"refused>50%", "--field", "peer=remote_addr", log}},
		{exitOK, "no line has the field remote_addr (peer)", []string{"replay", "--rules", good, "--field",
			"peer=remote_addr", log}},
		{exitUsage, "no rule applied to any request: per-user: no request has the attribute user", []string{"replay",
			"--rules", good, "--fail-if", "refused>50%", "--user", "-", log}},
		{exitUsage, "needs --against", []string{"replay", "--rules", good, "--fail-if", "newly_refused>1%", log}},
		{exitUsage, "as in 'refused>1%'", []string{"replay", "--rules", good, "--fail-if", "refusd>1%", log}},
		{exitRules, `unknown key "scop"`, []string{"replay", "--rules", bad, log}},
		{exitUsage, `required flag(s) "rules" not set`, []string{"replay", log}},
		{exitUsage, "no such file", []string{"replay", "--rules", good, "none.log"}},
		{exitUsage, `--memory "much"`, []string{"replay", "--rules", good, "--memory", "much", log}},
		{exitUsage, `invalid argument "-1" for "--rows"`, []string{"replay", "--rules", good, "--rows", "-1", log}},
		{exitUsage, `invalid argument "-1" for "--reorder"`, []string{"replay", "--rules", good, "--reorder", "-1",
			log}},
		{exitUsage, "--progress is auto", []string{"replay", "--rules", good, "--progress", "maybe", log}},
		{exitUsage, "time must be formatted as key=value", []string{"replay", "--rules", good, "--field", "time", log}},
		{exitUsage, "write KEY=TEXT", []string{"replay", "--rules", good, "--descriptor", "a", log}},
		{exitUsage, `"pfad" is not what a field can be`, []string{"replay", "--rules", good, "--field", "pfad=x", log}},
		{exitUsage, `have no domain "edge"`, []string{"replay", "--rules", good, "--domain", "edge", log}},
		{exitUsage, "is a directory", []string{"replay", "--rules", good, "--report", t.TempDir(), log}},
	} {
		got := call("", c.args...)
		if got.code != c.code || !strings.Contains(got.out+got.errors, c.says) {
			t.Errorf("spillway %s\nends with %d, want %d, and says %q:\n%s%s", strings.Join(c.args, " "), got.code,
				c.code, c.says, got.out, got.errors)
		}
	}
}

// TestFaultsHaveACodeOfTheirOwn: what the program itself breaks is not taken for a mistake of its caller.
func TestFaultsHaveACodeOfTheirOwn(t *testing.T) {
	var diagnostics bytes.Buffer
	code := report(fmt.Errorf("a.yaml:3: %w: index out of range", whatif.ErrFault), &diagnostics)
	if code != exitInternal || !strings.Contains(diagnostics.String(), "index out of range") {
		t.Errorf("exit code %d: %s", code, diagnostics.String())
	}
}

// TestExamplesPassTheirTests runs what examples/rules ship with.
func TestExamplesPassTheirTests(t *testing.T) {
	got := call("", "test", examples+"/tests")
	if got.code != exitOK || !strings.Contains(got.out, "0 failed in 3 files") {
		t.Errorf("exit code %d:\n%s%s", got.code, got.out, got.errors)
	}
	rules, err := filepath.Glob(examples + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range rules {
		_, err := os.Stat(filepath.Join(examples, "tests", filepath.Base(name)))
		if err != nil {
			t.Errorf("%s has no tests: %v", name, err)
		}
	}
}

// TestJSONIsJSON: what programs read of each command.
func TestJSONIsJSON(t *testing.T) {
	good, bad := write(t, "good.yaml", goodRules), write(t, "bad.yaml", badRules)
	for _, args := range [][]string{
		{"version"}, {"lint", bad}, {"test", examples + "/tests"}, {"diff", good, examples}, {"replay", "--rules",
			good, "-"},
	} {
		got := call(goodLine, append(args, "--output", "json")...)
		var value map[string]any
		err := json.Unmarshal([]byte(got.out), &value)
		if err != nil || len(value) == 0 || got.errors != "" {
			t.Errorf("%v prints no JSON: %v\n%s%s", args, err, got.out, got.errors)
		}
	}
}

// TestSARIF has what viewers need of each problem: a rule that is declared, a level, a text, a relative file and a
// position from 1.
func TestSARIF(t *testing.T) {
	t.Chdir(t.TempDir())
	err := os.WriteFile("a b.yaml", []byte(badRules), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	got := call("", "lint", "-o", "sarif", "a b.yaml")
	err = json.Unmarshal([]byte(got.out), &log)
	if err != nil || got.code != exitFound || log.Version != "2.1.0" || len(log.Runs) != 1 ||
		len(log.Runs[0].Results) != 2 {
		t.Fatalf("%v: %s", err, got.out)
	}
	for _, r := range log.Runs[0].Results {
		place := r.Locations[0].PhysicalLocation
		if r.RuleID != log.Runs[0].Tool.Driver.Rules[0].ID || r.Level != "error" || r.Message.Text == "" ||
			place.ArtifactLocation.URI != "a%20b.yaml" || place.Region.StartLine < 3 || place.Region.StartColumn < 1 {
			t.Errorf("%+v", r)
		}
	}
}

// TestReportFiles writes the report and the refusals into files.
func TestReportFiles(t *testing.T) {
	folder := t.TempDir()
	got := call(goodLine+goodLine, "replay", "--rules", write(t, "good.yaml", goodRules), "--user", "user", "-o",
		"html", "--report", folder+"/r.html", "--refusals", folder+"/r.jsonl", "-")
	page, err := os.ReadFile(folder + "/r.html")
	if got.code != exitOK || got.out != "" || err != nil || !strings.HasPrefix(string(page), "<!doctype html>") {
		t.Errorf("exit code %d, %v: %s%s", got.code, err, got.out, got.errors)
	}
	lines, err := os.ReadFile(folder + "/r.jsonl")
	if err != nil ||
		string(lines) != `{"time":"2026-03-01T00:00:00Z","rule":"per-user","who":"user alice",`+
			`"outcome":"refused","method":"GET","path":"/","retry_after":60}`+"\n" {
		t.Errorf("%v: %s", err, lines)
	}
}

func TestCompletions(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := call("", "completion", shell); got.code != exitOK || !strings.Contains(got.out, "spillway") {
			t.Errorf("%s: exit code %d: %.200s", shell, got.code, got.out)
		}
	}
	for want, args := range map[string][]string{
		"replay\t": {""}, "wide": {"users", "list", "-o", ""}, "sarif": {"lint", "--output", ""}, "html": {"replay",
			"-o", ""}, "--against": {"replay", "--a"}, "never": {"replay", "--progress", ""},
	} {
		if got := call("", append([]string{"__complete"}, args...)...); !strings.Contains(got.out, want) {
			t.Errorf("completing %q offers %q, want %q", args, got.out, want)
		}
	}
}
