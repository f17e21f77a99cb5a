package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// fresh is a PATH with a shell and make, and none of the programs that the demo needs. apt-get notes what it is asked
// for.
func fresh(t *testing.T) (path, asked string) {
	t.Helper()
	folder := t.TempDir()
	asked = filepath.Join(folder, "asked")
	for _, name := range []string{"bash", "sh", "make", "env", "dirname", "mktemp", "rm", "mkdir", "mv", "chmod", "cat",
		"git"} {
		program := must.Get(exec.LookPath(name))(t)
		must.Do(t, os.Symlink(program, filepath.Join(folder, name)))
	}
	for name, text := range map[string]string{
		"apt-get": "#!/bin/sh\necho \"$@\" >>" + asked + "\n",
		"id":      "#!/bin/sh\necho 0\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o755))
	}
	return folder, asked
}

// install runs a target of the Makefile as root of a machine that has nothing, but for Envoy, and returns what is
// installed.
func install(t *testing.T, target string) string {
	t.Helper()
	path, asked := fresh(t)
	// These are downloaded or built, not installed.
	run := exec.Command(filepath.Join(path, "make"), "-C", "../..", target, "LANGUAGE_SERVER=",
		"SCHEMATHESIS=", "HELM=")
	run.Env = []string{"PATH=" + path, "ENVOY_BIN=/bin/sh", "HOME=" + t.TempDir()}
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, out)
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		t.Fatalf("make %s installs nothing: %v\n%s", target, err, out)
	}
	return string(text)
}

func TestTheDemoInstallsOnlyWhatItUses(t *testing.T) {
	text := must.Get(os.ReadFile("../../Makefile"))(t)
	if !strings.Contains(string(text), "\ndemo: demo-tools build ##") {
		t.Error("the demo needs more than demo-tools and build")
	}
	demo, all := install(t, "demo-tools"), install(t, "tools")
	for name, inDemo := range map[string]bool{"redis-server": true, "curl": true, "gcc": false, "prometheus": false} {
		if strings.Contains(demo, " "+name) != inDemo {
			t.Errorf("make demo installs %s: %v, want %v:\n%s", name, !inDemo, inDemo, demo)
		}
		if !strings.Contains(all, " "+name) {
			t.Errorf("make tools does not install %s:\n%s", name, all)
		}
	}
}

// TestWithoutRootTheMissingIsNamed: a person has to install it, and must be able to.
func TestWithoutRootTheMissingIsNamed(t *testing.T) {
	for name, want := range map[string]string{"id": "sudo apt-get install --no-install-recommends redis-server",
		"apt-get": "Install what your system calls them"} {
		path, _ := fresh(t)
		err := os.Remove(filepath.Join(path, name))
		if err == nil && name == "id" {
			err = os.WriteFile(filepath.Join(path, name), []byte("#!/bin/sh\necho 1000\n"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		run := exec.Command("../../tools/packages", "redis-server")
		run.Env = []string{"PATH=" + path}
		out, err := run.CombinedOutput()
		named := strings.Contains(string(out), want) && strings.Contains(string(out), "CONTRIBUTING.md, Set up")
		if err == nil || !named {
			t.Errorf("without %s: %v, %q, want %q", name, err, out, want)
		}
	}
}
