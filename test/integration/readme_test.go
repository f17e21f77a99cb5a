package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// What the README tells a newcomer to paste must do what it says, on the rules that make run loads.
func TestReadmeLineIsRefusedWithinFortyRepeats(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(servers.Root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(readme)) {
		if strings.HasPrefix(line, "curl ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) == 0 {
		t.Fatal("README.md has no line that starts with curl")
	}
	sidecar := servers.StartSidecar(t, "RULES="+filepath.Join(servers.Root(t), "examples", "rules"))
	for _, line := range lines {
		if strings.ContainsAny(line, "|\\") && !strings.Contains(line, `\n`) || strings.HasSuffix(line, `\`) {
			t.Errorf("%s: has a pipe or a continuation, which not every shell pastes alike", line)
		}
		if strings.Count(line, "localhost:8080") != 1 {
			t.Fatalf("%s: does not go to localhost:8080", line)
		}
		command := strings.Replace(line, "localhost:8080", sidecar.HTTP, 1)
		var said []string
		for len(said) < 40 && !(len(said) > 0 && said[len(said)-1] == "429") {
			out, err := exec.Command("sh", "-c", command).Output()
			if err != nil {
				t.Fatalf("%s: %v (is curl installed?)", command, err)
			}
			said = append(said, strings.TrimSpace(string(out)))
		}
		if said[0] != "200" || said[len(said)-1] != "429" {
			t.Errorf("%s said %v, want 200 first and 429 within 40 repeats", command, said)
		}
	}
}
