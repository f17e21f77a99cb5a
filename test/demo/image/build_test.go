package image

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// version is what the build under test is told to call itself.
const version = "1.2.3-test"

// builder performs the steps of a stage on this machine. The stage's root folder is a temporary one, and so is the context: a
// copy of exactly the files that .dockerignore lets in. Commands run with the machine's own Go.
type builder struct {
	root, context string
	workdir       string   // as the Dockerfile says it, from /
	env           []string // of RUN: ENV and ARG so far
	args          map[string]string
	stages        map[string]string // root folders of earlier stages
}

func newBuilder(t *testing.T, context string, stages map[string]string) *builder {
	t.Helper()
	return &builder{
		root: t.TempDir(), context: context, workdir: "/", stages: stages,
		args: map[string]string{"TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH, "VERSION": version, "REVISION": "abc"},
	}
}

// perform does one step. What only describes the image is left to other tests.
func (b *builder) perform(t *testing.T, s step) {
	t.Helper()
	switch s.verb {
	case "WORKDIR":
		b.workdir = path.Join(b.workdir, s.args)
		b.make(t, b.workdir)
	case "ENV":
		words, _ := s.words()
		b.env = append(b.env, words...)
	case "ARG":
		name, value, _ := strings.Cut(s.args, "=")
		if given, ok := b.args[name]; ok {
			value = given
		}
		b.env = append(b.env, name+"="+value)
	case "COPY":
		b.copy(t, s)
	case "RUN":
		b.run(t, s)
	case "LABEL", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT":
	default:
		t.Fatalf("%v: this test cannot perform it", s)
	}
}

// absolute finds words of a command that are absolute paths.
var absolute = regexp.MustCompile(`(^|[\s=])/(\w)`)

// run runs a command with the stage's root in front of its absolute paths.
func (b *builder) run(t *testing.T, s step) {
	t.Helper()
	if strings.HasPrefix(s.args, "--") || strings.HasPrefix(s.args, "[") {
		t.Fatalf("%v: this test cannot perform flags and lists", s)
	}
	cmd := exec.Command("sh", "-c", absolute.ReplaceAllString(s.args, "${1}"+b.root+"/${2}"))
	cmd.Dir = filepath.Join(b.root, b.workdir)
	cmd.Env = append(os.Environ(), b.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", s, err, out)
	}
}

func (b *builder) copy(t *testing.T, s step) {
	t.Helper()
	words, flags := s.words()
	from := b.context
	if name, ok := flags["from"]; ok {
		from = b.stages[name]
	}
	if from == "" || len(words) < 2 {
		t.Fatalf("%v: from nowhere", s)
	}
	to := words[len(words)-1]
	into := strings.HasSuffix(to, "/") || len(words) > 2 || to == "."
	if !path.IsAbs(to) {
		to = path.Join(b.workdir, to)
	}
	for _, source := range words[:len(words)-1] {
		err := copyInto(filepath.Join(from, source), filepath.Join(b.root, to), into)
		if err != nil {
			t.Fatalf("%v: %v", s, err)
		}
	}
}

func (b *builder) make(t *testing.T, folder string) {
	t.Helper()
	err := os.MkdirAll(filepath.Join(b.root, folder), 0o755)
	if err != nil {
		t.Fatal(err)
	}
}

// copyInto copies a file, or what a folder holds. A file keeps its name where the destination is a folder.
func copyInto(from, to string, folder bool) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return copyTree(from, to, func(string) bool { return true })
	}
	if folder {
		to = filepath.Join(to, filepath.Base(from))
	}
	return copyFile(from, to, info.Mode())
}

func copyTree(from, to string, wanted func(name string) bool) error {
	return filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, file)
		if err != nil || !wanted(filepath.ToSlash(name)) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return copyFile(file, filepath.Join(to, name), info.Mode())
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	if !mode.IsRegular() {
		return fmt.Errorf("%s is no regular file", from)
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(to), 0o755)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode.Perm())
}

// ourContext is a clean copy of the files that .dockerignore lets in.
func ourContext(t *testing.T) string {
	t.Helper()
	context, rules := t.TempDir(), ourIgnore(t)
	err := copyTree(servers.Root(t), context, func(name string) bool { return !rules.drops(name) })
	if err != nil {
		t.Fatalf("copy the build context: %v", err)
	}
	return context
}

// buildImage performs the whole Dockerfile and returns the root folder of its result.
func buildImage(t *testing.T) string {
	t.Helper()
	context := ourContext(t)
	build, final := ourDockerfile(t)
	first := newBuilder(t, context, nil)
	for _, s := range build.steps {
		first.perform(t, s)
	}
	last := newBuilder(t, context, map[string]string{build.name: first.root})
	for _, s := range final.steps {
		last.perform(t, s)
	}
	return last.root
}

// files lists what is below a folder, as paths from it, sorted, with the sum of their sizes.
func files(t *testing.T, folder string) (names []string, size int64) {
	t.Helper()
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, file)
		names = append(names, filepath.ToSlash(name))
		size += info.Size()
		return err
	})
	if err != nil {
		t.Fatalf("list %s: %v", folder, err)
	}
	slices.Sort(names)
	return names, size
}
