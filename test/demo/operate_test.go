package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// operates runs operate.sh, and compares what its commands print with docs/guides/operate.md and test-rules.md.
func (d *demo) operates(t *testing.T) {
	command := filepath.Join(t.TempDir(), "spillway")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", command, "./cmd/spillway")
	build.Dir = servers.Root(t)
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	t.Setenv("SPILLWAY", command)
	printed := answers(d.script(t, "operate.sh"))
	pages := ""
	for _, name := range []string{"operate.md", "test-rules.md"} {
		page := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "docs", "guides", name)))(t)
		pages += string(page)
	}
	shown := 0
	for _, block := range strings.Split(pages, "```text\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		asked, want, _ := strings.Cut(block, "\n")
		shown++
		if got, ran := printed[asked]; !ran {
			t.Errorf("operate.sh does not run %q", asked)
		} else if line := firstMissing(want, got); line != "" {
			t.Errorf("%s does not print %q:\n%s", asked, line, got)
		}
	}
	if shown < len(printed)-1 { // the first one makes alice's limit
		t.Errorf("the pages show %d commands, the script %d", shown, len(printed))
	}
}

// answers are the commands of a script's output, with what each prints.
func answers(output string) map[string]string {
	all := map[string]string{}
	for _, part := range strings.Split("\n"+output, "\n$ ")[1:] {
		asked, comment, _ := strings.Cut(part, "\n")
		comment, _, _ = strings.Cut(comment, "\n== ")
		all["$ "+asked] = comment
	}
	return all
}

// firstMissing is the first line that is not printed after the ones before it. A line that is … means any, and … in a
// line for any part.
func firstMissing(want, got string) string {
	lines := strings.Split(got, "\n")
	for wanted := range strings.Lines(want) {
		wanted = strings.TrimRight(wanted, "\n ")
		if wanted == "…" || wanted == "" {
			continue
		}
		like := regexp.MustCompile("^" + blanks.ReplaceAllString(strings.ReplaceAll(regexp.QuoteMeta(wanted), "…",
			".*"), " +") + " *$")
		for len(lines) > 0 && !like.MatchString(lines[0]) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return wanted
		}
		lines = lines[1:]
	}
	return ""
}

// blanks are the gaps of a table, whose width follows what differs from run to run.
var blanks = regexp.MustCompile(` {2,}`)

func TestAPageIsComparedInOrder(t *testing.T) {
	got := "a 1\n  b   2\nc 3"
	for want, missing := range map[string]string{
		"a …\n…\nc 3\n": "", "  b  …\n": "", "c …\na …\n": "a …", "d\n": "d", "b  2\n": "b  2",
	} {
		if line := firstMissing(want, got); line != missing {
			t.Errorf("%q: %q is missing, want %q", want, line, missing)
		}
	}
}
