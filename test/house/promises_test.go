package house

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`")
	prover   = regexp.MustCompile(`^(Test[A-Z0-9]\w*|X\d+[a-z]?)$`)
	faultRow = regexp.MustCompile(`\bid: "(X\d+[a-z]?)"`)
)

// TestPromisesNameTheirTests holds the page about failures to the tests: each promise names one that exists, as does all of its
// prose, and each row of the fault matrix has its promise.
func TestPromisesNameTheirTests(t *testing.T) {
	known := provers(t)
	page, err := os.ReadFile("docs/failure-modes.md")
	if err != nil {
		t.Fatalf("read the page: %v", err)
	}
	var promised []string
	for n, line := range strings.Split(string(page), "\n") {
		for _, name := range namesIn(line) {
			if prover.MatchString(name) && !slices.Contains(known, name) {
				t.Errorf("docs/failure-modes.md:%d: there is no test %s", n+1, name)
			}
		}
		proof, ok := proofIn(line)
		if !ok {
			continue
		}
		names := namesIn(proof)
		if len(names) == 0 {
			t.Errorf("docs/failure-modes.md:%d: the promise names no test", n+1)
		}
		for _, name := range names {
			if !prover.MatchString(name) {
				t.Errorf("docs/failure-modes.md:%d: %s is no name of a test", n+1, name)
			}
		}
		promised = append(promised, names...)
	}
	for _, row := range known {
		if row[0] == 'X' && !slices.Contains(promised, row) {
			t.Errorf("docs/failure-modes.md promises nothing that row %s of the matrix holds it to", row)
		}
	}
}

// TestUpgradePageIsTrue holds the page about upgrades to the code: its tests, variables and metrics exist, and it
// names the prefixes of keys in Redis, which are the numbers of their formats.
func TestUpgradePageIsTrue(t *testing.T) {
	const name = "docs/upgrade.md"
	namesExist(t, name)
	for _, file := range []string{"descriptors/key.go", "descriptors/records.go"} {
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

// provers are the names of all tests, and of the rows of the fault matrix.
func provers(t *testing.T) []string {
	t.Helper()
	var known []string
	for _, s := range sources(t) {
		if !s.test {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				known = append(known, f.Name.Name)
			}
		}
		if s.room == "test/integration/faults" || s.room == "test/control" {
			for _, row := range faultRow.FindAllStringSubmatch(s.text, -1) {
				known = append(known, row[1])
			}
		}
	}
	return known
}
