package rules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillway-mesh/spillway/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for something that has to happen.
const patience = time.Minute

// follower collects what a source publishes.
type follower struct {
	t     *testing.T
	files *Files
	loads chan Load
	stop  func()
}

// follow watches until the test ends.
func follow(t *testing.T, cfg FilesConfig) *follower {
	t.Helper()
	if cfg.Settle == 0 {
		cfg.Settle = 5 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{t: t, files: NewFiles(cfg), loads: make(chan Load, 10_000)}
	done := make(chan error, 1)
	go func() { done <- f.files.Watch(ctx, func(l Load) { f.loads <- l }) }()
	f.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
	}
	t.Cleanup(func() { f.stop() })
	return f
}

// until waits for a load of which ok holds.
func (f *follower) until(what string, ok func(Load) bool) Load {
	f.t.Helper()
	timeout := time.After(patience)
	var last Load
	for {
		select {
		case last = <-f.loads:
			if ok(last) {
				return last
			}
		case <-timeout:
			f.t.Fatalf("no load with %s within %v; the last one: %d files, %s", what, patience, last.Files, last.Text())
		}
	}
}

// untilDomains waits for a good load of exactly these domains.
func (f *follower) untilDomains(domains ...string) {
	f.t.Helper()
	f.until(fmt.Sprintf("domains %q", domains), func(l Load) bool {
		return l.Set != nil && slices.Equal(l.Set.Domains(), domains)
	})
}

// untilRejected waits for a load that was refused with a text.
func (f *follower) untilRejected(says string) {
	f.t.Helper()
	f.until(fmt.Sprintf("%q", says), func(l Load) bool { return l.Set == nil && strings.Contains(l.Text(), says) })
}

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte(text), 0o644))
}

func domain(name string) string { return "domain: " + name + "\n" }

func TestAFileIsWatched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.yaml")
	write(t, domain("one"), file)
	f := follow(t, FilesConfig{Path: file})
	f.untilDomains("one")

	write(t, domain("two"), file)
	f.untilDomains("two")

	write(t, domain("three"), file+".new")
	must.Do(t, os.Rename(file+".new", file))
	f.untilDomains("three")

	must.Do(t, os.Remove(file))
	f.untilRejected("no such file")

	write(t, domain("four"), file)
	f.untilDomains("four")
}

func TestAFolderIsWatched(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("a"), dir, "a.yaml")
	write(t, "not: [yaml", dir, "notes.txt")
	write(t, "not: [yaml", dir, ".hidden.yaml")
	write(t, "not: [yaml", dir, "sub", "deep.yaml")
	must.Do(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o755))
	f := follow(t, FilesConfig{Path: dir})
	f.untilDomains("a")

	write(t, domain("b"), dir, "b.yml")
	f.untilDomains("a", "b")

	must.Do(t, os.Rename(filepath.Join(dir, "b.yml"), filepath.Join(dir, "b.off")))
	f.untilDomains("a")

	must.Do(t, os.Symlink(filepath.Join(dir, "b.off"), filepath.Join(dir, "c.yaml")))
	f.untilDomains("a", "b")

	write(t, domain("linked"), dir, "b.off")
	f.untilDomains("a", "linked")
}

func TestOneBadFileRefusesAll(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("a"), dir, "a.yaml")
	write(t, "domain: b\nrule: []\n", dir, "b.yaml")
	write(t, "domain: c\nrules:\n  - { name: x, scope: user }\n", dir, "c.yaml")
	f := follow(t, FilesConfig{Path: dir})
	load := f.until("problems", Load.Rejected)
	got := FormatProblems(load.Problems)
	for _, says := range []string{"b.yaml:2:1: unknown key \"rule\"; did you mean \"rules\"?",
		"c.yaml:3:5: rule \"x\" has no limit"} {
		if !strings.Contains(got, filepath.Join(dir, says)) {
			t.Errorf("%q is not among the problems:\n%s", says, got)
		}
	}
	if load.Files != 3 {
		t.Errorf("%d files were read, want 3", load.Files)
	}
	write(t, domain("b"), dir, "b.yaml")
	write(t, domain("c"), dir, "c.yaml")
	f.untilDomains("a", "b", "c")
}

func TestReloadPublishesTheSameAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("a"), dir, "a.yaml")
	f := follow(t, FilesConfig{Path: dir})
	f.untilDomains("a")
	f.files.Reload()
	f.untilDomains("a")
}

func TestTheSameContentIsPublishedOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("a"), dir, "a.yaml")
	f := follow(t, FilesConfig{Path: dir})
	f.untilDomains("a")
	write(t, domain("a"), dir, "a.yaml")
	must.Do(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o600))
	write(t, "no rules", dir, "notes.txt")
	write(t, domain("b"), dir, "b.yaml")
	load := f.until("anything", func(Load) bool { return true })
	if load.Set == nil || len(load.Set.Domains()) != 2 {
		t.Errorf("%d files, %s was published again, want nothing before there are two", load.Files, load.Text())
	}
}

func TestAMissingFolderIsAwaited(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet", "there")
	f := follow(t, FilesConfig{Path: dir, Retry: 20 * time.Millisecond})
	f.untilRejected(dir)
	must.Do(t, os.MkdirAll(dir, 0o755))
	f.untilRejected("must hold a rule file")
	write(t, domain("a"), dir, "a.yaml")
	f.untilDomains("a")
}

func TestAFolderIsDeletedAndMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rules")
	f := follow(t, FilesConfig{Path: dir, Retry: 20 * time.Millisecond})
	f.untilRejected("no such file")
	for i := range 10 {
		name := fmt.Sprintf("d%d", i)
		write(t, domain(name), dir, "a.yaml")
		f.untilDomains(name)
		must.Do(t, os.RemoveAll(dir))
		f.untilRejected(dir)
	}
}

// A folder that is made again often has the inode of the one before, and its watch ended with that one.
func TestAFolderThatIsMadeAgainIsWatched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rules")
	write(t, domain("a"), dir, "a.yaml")
	f := follow(t, FilesConfig{Path: dir, Settle: 50 * time.Millisecond, Poll: time.Hour})
	f.untilDomains("a")
	for i := range 5 {
		must.Do(t, os.RemoveAll(dir))
		write(t, domain(fmt.Sprintf("made%d", i)), dir, "a.yaml")
		f.untilDomains(fmt.Sprintf("made%d", i))
		write(t, domain(fmt.Sprintf("changed%d", i)), dir, "a.yaml")
		f.untilDomains(fmt.Sprintf("changed%d", i))
	}
}

func TestAFolderIsSwappedForAnother(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "rules")
	write(t, domain("old"), dir, "a.yaml")
	write(t, domain("new"), top, "next", "a.yaml")
	f := follow(t, FilesConfig{Path: dir})
	f.untilDomains("old")
	must.Do(t, os.Rename(dir, filepath.Join(top, "before")))
	must.Do(t, os.Rename(filepath.Join(top, "next"), dir))
	f.untilDomains("new")
	write(t, domain("newer"), dir, "a.yaml")
	f.untilDomains("newer")
}

func TestNoPathIsAnError(t *testing.T) {
	err := NewFiles(FilesConfig{}).Watch(context.Background(), func(Load) { t.Error("something was published") })
	if err == nil {
		t.Error("Watch without a path returned nil")
	}
}

func TestUnreadableFileIsAProblem(t *testing.T) {
	d := decodeSource(source{path: "a.yaml", err: os.ErrPermission})
	if got := FormatProblems(d.problems); !strings.Contains(got, "a.yaml: the file cannot be read: permission denied") {
		t.Errorf("problems are %q", got)
	}
}

// TestTwoHundredBrokenFiles puts one broken file after another beside a good one: each is refused with a place, and the
// good one is live again afterwards.
func TestTwoHundredBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, domain("good"), dir, "good.yaml")
	broken := brokenTexts(t)
	f := NewFiles(FilesConfig{Path: dir})
	for i, text := range broken {
		write(t, text, dir, "bad.yaml")
		load := f.Load()
		if !load.Rejected() || load.Err != nil {
			t.Errorf("broken file %d was not refused:\n%.300s", i, text)
		}
		if !slices.ContainsFunc(load.Problems, isError) {
			t.Errorf("broken file %d has no error:\n%.300s", i, text)
		}
	}
	must.Do(t, os.Remove(filepath.Join(dir, "bad.yaml")))
	if load := f.Load(); load.Rejected() {
		t.Errorf("the good file alone is refused: %s", load.Text())
	}
}

// brokenTexts returns 200 broken files: those of testdata/bad, and the full one with a character too many.
func brokenTexts(t *testing.T) []string {
	t.Helper()
	var texts []string
	files, err := filepath.Glob("testdata/bad/*.yaml")
	must.Do(t, err)
	for _, file := range files {
		text := string(readFile(t, file))
		expected, _ := expectations(text)
		if !slices.ContainsFunc(expected, func(line string) bool { return !strings.Contains(line, " warning: ") }) {
			continue // a file of warnings alone is taken
		}
		texts = append(texts, text)
	}
	lines := strings.SplitAfter(string(readFile(t, full)), "\n")
	for at := 11; len(texts) < 200; at++ {
		changed := slices.Clone(lines)
		changed[at] = strings.Replace(changed[at], ":", "?:", 1)
		if changed[at] != lines[at] {
			texts = append(texts, strings.Join(changed, ""))
		}
	}
	return texts
}
