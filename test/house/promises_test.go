package house

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	prover   = regexp.MustCompile(`^(Test[A-Z0-9]\w*|X\d+[a-z]?)$`)
	faultRow = regexp.MustCompile(`\bid: "(X\d+[a-z]?)"[^\n]*`)
)

// TestPromisesNameTheirTests checks the page about failures against the tests: each promise names tests that exist and
// the targets of make that run them, and each row of the fault matrix has its promise. With -update it writes the
// targets.
func TestPromisesNameTheirTests(t *testing.T) {
	const name = "docs/failure-modes.md"
	known := provers(t)
	var promised []string
	lines := strings.Split(page(t, name), "\n")
	for n, line := range lines {
		for _, word := range namesIn(line) {
			if prover.MatchString(word) && known[word] == "" {
				t.Errorf("%s:%d: there is no test %s", name, n+1, word)
			}
		}
		promise, given, ok := targetIn(line)
		if !ok {
			continue
		}
		proof, _ := proofIn(promise)
		names := namesIn(proof)
		if len(names) == 0 {
			t.Errorf("%s:%d: the promise names no test", name, n+1)
		}
		var targets []string
		for _, word := range names {
			if !prover.MatchString(word) {
				t.Errorf("%s:%d: %s is not the name of a test", name, n+1, word)
			}
			targets = append(targets, known[word])
		}
		slices.Sort(targets)
		want := strings.Join(slices.Compact(targets), ", ")
		lines[n] = promise + " " + want + " |"
		if given != want && !*update {
			t.Errorf("%s:%d: the tests run by %q, the page has %q: make docs writes it", name, n+1, want, given)
		}
		promised = append(promised, names...)
	}
	for row := range known {
		if row[0] == 'X' && !slices.Contains(promised, row) {
			t.Errorf("%s promises nothing that row %s of the matrix checks", name, row)
		}
	}
	if *update {
		keep(t, name, strings.Join(lines, "\n"))
	}
}

// targetIn splits a row of a table into what comes before its last cell, and that cell: the targets that run the tests.
func targetIn(line string) (promise, targets string, ok bool) {
	if !strings.HasPrefix(line, "|") {
		return "", "", false
	}
	trimmed := strings.TrimSuffix(line, "|")
	at := strings.LastIndex(trimmed, "|")
	promise, targets = trimmed[:at+1], strings.TrimSpace(trimmed[at+1:])
	return promise, targets, targets != "run by" && targets != "---"
}

// TestUpgradePageIsTrue holds the page about upgrades to the code: its tests, variables and metrics exist, and it
// names the prefixes of keys in Redis, which are the numbers of their formats.
func TestUpgradePageIsTrue(t *testing.T) {
	const name = "docs/upgrade.md"
	namesExist(t, name)
	for _, file := range []string{"keys/keys.go", "keys/names.go"} {
		prefix := regexp.MustCompile(`Schema\s+= "([a-z]+\d+:)"`).FindStringSubmatch(page(t, file))
		if prefix == nil {
			t.Fatalf("%s has no prefix of keys: it has another shape than this test reads", file)
		}
		if !strings.Contains(page(t, name), "`"+prefix[1]+"`") {
			t.Errorf("%s does not name the prefix %s of %s", name, prefix[1], file)
		}
	}
}

// TestRedisPageIsTrue holds the page about Redis to the code: its tests, variables and metrics exist.
func TestRedisPageIsTrue(t *testing.T) { namesExist(t, "docs/redis.md") }

// namesIn are the backquoted words of a text.
func namesIn(text string) []string {
	var names []string
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// proofIn is the last cell of a row of a table, unless that is its head.
func proofIn(line string) (proof string, ok bool) {
	if !strings.HasPrefix(line, "|") {
		return "", false
	}
	cells := strings.Split(strings.Trim(line, "| "), "|")
	proof = strings.TrimSpace(cells[len(cells)-1])
	return proof, proof != "tested by" && proof != "---"
}

// provers are the names of all tests, and of the rows of the fault matrix, with the target of make that runs them:
// test, outer or all.
func provers(t *testing.T) map[string]string {
	t.Helper()
	outer := strings.Fields(page(t, "tools/outer-packages") + " test/chart test/manifests test/demo/schema")
	known := map[string]string{}
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		target := "test"
		switch {
		case strings.HasPrefix(s.text, "//go:build full"):
			target = "all"
		case slices.Contains(outer, s.room):
			target = "outer"
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				known[f.Name.Name] = target
			}
		}
		if s.room != "test/integration/faults" && s.room != "test/control" {
			continue
		}
		for _, row := range faultRow.FindAllStringSubmatch(s.text, -1) {
			target := "all"
			if strings.Contains(row[0], "short: ") && !strings.Contains(row[0], "short: false") {
				target = "test"
			}
			if known[row[1]] != "test" {
				known[row[1]] = target
			}
		}
	}
	return known
}
