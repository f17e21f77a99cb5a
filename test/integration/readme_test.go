package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestReadmeShowsWhatASidecarDoes runs the two commands of the README on the rules that make run loads: ten are let
// through and the next one is refused, as the README prints it. The sidecar prints the second command at its start.
func TestReadmeShowsWhatASidecarDoes(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "README.md")))(t)
	loop, curl := lineWith(t, string(text), "for i in "), lineWith(t, string(text), "curl -i ")
	sidecar := servers.StartSidecar(t, "RULES="+filepath.Join(servers.Root(t), "examples", "rules"))
	at := strings.NewReplacer("localhost:8080", sidecar.HTTP, "127.0.0.1:8080", sidecar.HTTP)
	servers.Await(t, "the line of the README in the log", func() error {
		if want := "try: " + at.Replace(curl); !strings.Contains(sidecar.Output(), want+"\n") {
			return fmt.Errorf("the log lacks %s:\n%s", want, sidecar.Output())
		}
		return nil
	})
	wants := []string{
		strings.Split(block(string(text), curl), "\n")[0],
		`"name":"per-user","requestsPerUnit":10,"unit":"MINUTE"`, `"key":"retry-after"`,
	}
	tries := 0
	servers.Await(t, "a minute of the clock in which all requests fit", func() error {
		tries++
		user := strings.NewReplacer("alice", fmt.Sprintf("alice%d", tries))
		codes := shell(t, user.Replace(at.Replace(loop)))
		if want := strings.Repeat("200\n", 10) + "429\n"; codes != want {
			return fmt.Errorf("%s prints %q", loop, codes)
		}
		answer := strings.ReplaceAll(shell(t, user.Replace(at.Replace(curl))), "\r", "")
		for _, want := range wants {
			if !strings.Contains(answer, want) {
				return fmt.Errorf("%s does not print %s:\n%s", curl, want, answer)
			}
		}
		return nil
	})
}

// lineWith is the line of a text that begins so.
func lineWith(t *testing.T, text, begin string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("README.md has no line that begins with %q", begin)
	return ""
}

// block is the block of text behind a line.
func block(text, line string) string {
	_, after, _ := strings.Cut(text, line)
	_, after, _ = strings.Cut(after, "```text\n")
	after, _, _ = strings.Cut(after, "```")
	return after
}

// shell is what a command prints.
func shell(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).Output()
	if err != nil {
		t.Fatalf("%s: %v (is curl installed?)", command, err)
	}
	return string(out)
}
