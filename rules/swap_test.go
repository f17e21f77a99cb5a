package rules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// volume is a ConfigMap as Kubernetes mounts it: files are links into ..data, which is a link to a folder with a date.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

// swap puts new content in place of the old in one step, as the kubelet does.
func (v *volume) swap(files map[string]string) {
	v.t.Helper()
	v.version++
	name := fmt.Sprintf("..2024_%06d", v.version)
	for file, text := range files {
		write(v.t, text, v.dir, name, file)
	}
	data := filepath.Join(v.dir, "..data")
	old, _ := os.Readlink(data)
	must.Do(v.t, os.Symlink(name, data+"_tmp"))
	must.Do(v.t, os.Rename(data+"_tmp", data))
	for file := range files {
		link := filepath.Join(v.dir, file)
		if _, err := os.Lstat(link); err != nil {
			must.Do(v.t, os.Symlink(filepath.Join("..data", file), link))
		}
	}
	if old != "" {
		must.Do(v.t, os.RemoveAll(filepath.Join(v.dir, old)))
	}
}

func twins(version int) map[string]string {
	return map[string]string{"a.yaml": domain(fmt.Sprintf("a%d", version)),
		"b.yaml": domain(fmt.Sprintf("b%d", version))}
}

// TestSwaps holds that, over a thousand swaps, no set is a mix of two versions, none is refused, and the last is found
// by its change: a look at the files without one would come after an hour.
func TestSwaps(t *testing.T) {
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(twins(0))
	f := follow(t, FilesConfig{Path: v.dir, Settle: time.Millisecond, Poll: time.Hour})
	f.untilDomains("a0", "b0")
	const swaps = 1000
	for i := range swaps {
		v.swap(twins(i + 1))
	}
	start := time.Now()
	last := []string{fmt.Sprintf("a%d", swaps), fmt.Sprintf("b%d", swaps)}
	f.until("the last version", func(l Load) bool {
		if l.Rejected() {
			t.Errorf("a load was refused: %s", l.Text())
			return false
		}
		domains := l.Set.Domains()
		if len(domains) != 2 || domains[0][1:] != domains[1][1:] {
			t.Errorf("domains are %q, want two of one version", domains)
		}
		return slices.Equal(domains, last)
	})
	t.Logf("the last version was live after %v", time.Since(start))
}

func TestSwapRemovesAndAddsFiles(t *testing.T) {
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(map[string]string{"a.yaml": domain("a"), "b.yaml": domain("b")})
	f := follow(t, FilesConfig{Path: v.dir})
	f.untilDomains("a", "b")
	v.swap(map[string]string{"a.yaml": domain("a"), "c.yaml": domain("c")}) // the link b.yaml dangles now
	f.untilDomains("a", "c")
	v.swap(map[string]string{"a.yaml": "domain: [", "c.yaml": domain("c")})
	f.untilRejected("a.yaml:1:1:")
	v.swap(map[string]string{"a.yaml": domain("a2"), "c.yaml": domain("c")})
	f.untilDomains("a2", "c")
}

func TestOneFileOfAVolume(t *testing.T) {
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(twins(0))
	f := follow(t, FilesConfig{Path: filepath.Join(v.dir, "a.yaml")})
	f.untilDomains("a0")
	for i := range 20 {
		v.swap(twins(i + 1))
		f.untilDomains(fmt.Sprintf("a%d", i+1))
	}
}

// TestWritesInPlace holds that a file that is cut and written again and again is in the end what was written last.
func TestWritesInPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := func(i int) string { return fmt.Sprintf("domain: d%03d\nrules:\n%s", i, manyRules(50)) }
	write(t, text(0), file)
	f := follow(t, FilesConfig{Path: file})
	f.untilDomains("d000")
	for i := 1; i <= 200; i++ {
		write(t, text(i), file)
	}
	f.untilDomains("d200")
}

func manyRules(count int) string {
	var b strings.Builder
	for i := range count {
		fmt.Fprintf(&b, "  - { name: r%d, scope: user, match: { endpoints: [/r%d] }, limit: 5/1s }\n", i, i)
	}
	return b.String()
}

// TestASwapIsNoMissingFile looks at a volume of one file all the time while it is swapped: a look may find a dangling
// link.
func TestASwapIsNoMissingFile(t *testing.T) {
	for _, name := range []string{"", "a.yaml"} {
		t.Run("path/"+name, func(t *testing.T) { lookWhileItIsSwapped(t, name) })
	}
}

// TestALinkThatLeadsElsewhereIsASwap compares two looks at a dangling link.
func TestALinkThatLeadsElsewhereIsASwap(t *testing.T) {
	for _, name := range []string{"", "a.yaml"} {
		dir := t.TempDir()
		must.Do(t, os.Symlink(filepath.Join("..data", "a.yaml"), filepath.Join(dir, "a.yaml")))
		f := NewFiles(FilesConfig{Path: filepath.Join(dir, name)})
		look := func(version string) listing {
			must.Do(t, os.Symlink(version, filepath.Join(dir, "new")))
			must.Do(t, os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "..data")))
			l, err := f.list()
			if err == nil {
				t.Errorf("path %q: there is a file", name)
			}
			return l
		}
		one, same, other := look("1"), look("1"), look("2")
		if !one.misses(same) || one.misses(other) {
			t.Errorf("path %q: the same place is %v, another one %v, want true and false", name, one.misses(same),
				one.misses(other))
		}
	}
}

func lookWhileItIsSwapped(t *testing.T, name string) {
	v := &volume{t: t, dir: t.TempDir()}
	v.swap(map[string]string{"a.yaml": domain("a")})
	f := NewFiles(FilesConfig{Path: filepath.Join(v.dir, name)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			v.swap(map[string]string{"a.yaml": domain("a")})
		}
	}()
	for swapping := true; swapping; {
		snap, err := f.snapshot(nil)
		if err == nil && len(snap.sources) != 1 || err != nil && !errors.Is(err, errUnsettled) {
			t.Errorf("there are %d files: %v", len(snap.sources), err)
		}
		select {
		case <-done:
			swapping = false
		default:
		}
	}
}
