package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// version is what the releases under test are called.
const version = "v1.2.3-test.1"

func TestVersionsAreChecked(t *testing.T) {
	for _, good := range []string{"v0.2.0", "v10.20.30", "v1.0.0-rc.1", version} {
		if err := checkVersion(good); err != nil {
			t.Errorf("%s is refused: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"": "VERSION is missing", "0.2.0": "use v0.2.0", "v0.2": "semantic version", "v1": "semantic version",
		"latest":       "semantic version",
		"v1.0.0+build": "without build metadata", "v01.2.3": "semantic version", "v1.2.3 ": "semantic version",
		"v1.2.3;ls": "semantic version",
	} {
		if err := checkVersion(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is answered with %v, want %q", bad, err, says)
		}
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for args, message := range map[string]string{
		"-version v1.2.3":                                                         "-out: name the folder",
		"-version v1.2.3 -out x y":                                                `unexpected argument "y"`,
		"-version v1.2.3 -out x -platforms plan9/386":                             `"plan9/386" must be one of`,
		"-version v1.2.3 -out x -revision a -time soon":                           `"soon" must be seconds`,
		"-version v1.2.3 -out x -source /nowhere":                                 "ask git for the commit, or set",
		"-version v1.2.3 -revision a -time 1 -platforms linux/amd64 -out testdir": "testdir exists",
	} {
		t.Chdir(t.TempDir())
		must.Do(t, os.Mkdir("testdir", 0o755))
		if err := run(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s is answered with %v, want %q", args, err, message)
		}
	}
}

// TestRelease makes a release twice, from two folders, and looks at it as its users do: for this machine's architecture
// alone, or with RELEASE=full for all platforms, and the second time with an empty build cache.
func TestRelease(t *testing.T) {
	platforms, full := "linux/"+runtime.GOARCH, os.Getenv("RELEASE") == "full"
	if full {
		platforms = ""
	}
	first := makeRelease(t, servers.Root(t), platforms)
	if full {
		t.Setenv("GOCACHE", t.TempDir())
	}
	second := makeRelease(t, copyOf(t, servers.Root(t)), platforms)
	t.Run("is reproducible", func(t *testing.T) { same(t, first, second) })
	t.Run("has checksums", func(t *testing.T) { summed(t, first) })
	t.Run("has archives", func(t *testing.T) { archived(t, first, full) })
	t.Run("has a bill", func(t *testing.T) { billed(t, first, full) })
	t.Run("has a chart", func(t *testing.T) { charted(t, first) })
	t.Run("has an image", func(t *testing.T) { imaged(t, first, full) })
}

func makeRelease(t *testing.T, source, platforms string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"-version", version, "-source", source, "-out", out, "-revision", "0123abc", "-time", "1700000000"}
	if platforms != "" {
		args = append(args, "-platforms", platforms)
	}
	must.Do(t, run(args))
	return out
}

// copyOf is the source in another folder, without what was built or downloaded there.
func copyOf(t *testing.T, source string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, file)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || name == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	})
	if err != nil {
		t.Fatalf("copy the source: %v", err)
	}
	return to
}

// contents are the files below a folder, by their paths.
func contentsOf(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	from := os.DirFS(folder)
	must.Do(t, fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		all[name], err = fs.ReadFile(from, name)
		return err
	}))
	return all
}

func same(t *testing.T, first, second string) {
	one, two := contentsOf(t, first), contentsOf(t, second)
	if len(one) != len(two) || len(one) < 8 {
		t.Fatalf("%d files the first time, %d the second", len(one), len(two))
	}
	for name, text := range one {
		if !bytes.Equal(text, two[name]) {
			t.Errorf("%s has other bytes the second time", name)
		}
	}
}

func summed(t *testing.T, out string) {
	files := contentsOf(t, out)
	lines := 0
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		lines++
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name])); got != sum {
			t.Errorf("SHA256SUMS says %s of %s, which has %s", sum, name, got)
		}
	}
	for name := range files {
		if !strings.HasPrefix(name, "image/") {
			lines--
		}
	}
	if lines != -1 { // it does not hold itself
		t.Errorf("SHA256SUMS and the folder differ by %d files", lines+1)
	}
}

// untar reads a tar: names with their headers and contents.
func untar(t *testing.T, from io.Reader) (headers map[string]*tar.Header, texts map[string][]byte) {
	t.Helper()
	headers, texts = map[string]*tar.Header{}, map[string][]byte{}
	for reader := tar.NewReader(from); ; {
		h, err := reader.Next()
		if err == io.EOF {
			return headers, texts
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name] = h
		texts[h.Name] = must.Get(io.ReadAll(reader))(t)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s carries something of this machine: %v", h.Name, h)
		}
	}
}

func ungzip(t *testing.T, file string) io.Reader {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	reader := must.Get(gzip.NewReader(bytes.NewReader(text)))(t)
	return reader
}

// archived looks into the archives, and runs the programs of this machine's platform.
func archived(t *testing.T, out string, full bool) {
	for _, p := range all {
		if !full && p != (platform{"linux", runtime.GOARCH}) {
			continue
		}
		folder := fmt.Sprintf("spillway_%s_%s", version, p)
		headers, texts := untar(t, ungzip(t, filepath.Join(out, folder+".tar.gz")))
		for _, name := range []string{"LICENSE", "README.md", "sidecar", "spillway"} {
			if headers[path.Join(folder, name)] == nil {
				t.Errorf("the archive of %s lacks %s", p, name)
			}
		}
		if p != (platform{runtime.GOOS, runtime.GOARCH}) {
			continue
		}
		for name, says := range map[string]string{"sidecar": "spillway sidecar " + version, "spillway": "spillway " +
			version} {
			file := filepath.Join(t.TempDir(), name)
			must.Do(t, os.WriteFile(file, texts[path.Join(folder, name)], 0o755))
			printed, err := exec.Command(file, "version").Output()
			if err != nil || strings.TrimSpace(string(printed)) != says {
				t.Errorf("%s version prints %q (%v), want %q", name, printed, err, says)
			}
		}
	}
}

// charted: the chart has the release's version, and not the values of its tests.
func charted(t *testing.T, out string) {
	headers, texts := untar(t, ungzip(t, filepath.Join(out, "spillway-"+strings.TrimPrefix(version, "v")+".tgz")))
	lines := bufio.NewScanner(bytes.NewReader(texts["spillway/Chart.yaml"]))
	var found []string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "version: ") || strings.HasPrefix(lines.Text(), "appVersion: ") {
			found = append(found, lines.Text())
		}
	}
	if !slices.Equal(found, []string{"version: 1.2.3-test.1", "appVersion: " + version}) {
		t.Errorf("the chart says %v", found)
	}
	for name := range headers {
		if strings.HasPrefix(name, "spillway/ci/") {
			t.Errorf("the chart has %s", name)
		}
	}
	if headers["spillway/templates/deployment.yaml"] == nil || headers["spillway/values.schema.json"] == nil {
		t.Error("the chart is not whole")
	}
}
