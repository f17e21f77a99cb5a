package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
)

// Control is the control plane's own program, started by a test.
type Control struct {
	*Process
	URL string // of its API
}

// builtSpillway is the command that all tests of this process start.
var builtSpillway struct {
	sync.Once
	err error
}

// SpillwayBin returns the path of the command: the one that all packages share, else cmd/spillway, built once per test
// process.
func SpillwayBin(t testing.TB) string {
	t.Helper()
	if bin := shared("spillway"); bin != "" {
		return bin
	}
	bin := filepath.Join(filepath.Dir(SidecarBin(t)), "spillway")
	builtSpillway.Do(func() {
		args := append([]string{"build"}, buildFlags...)
		cmd := exec.Command("go", append(args, "-o", bin, "./cmd/spillway")...)
		cmd.Dir = Root(t)
		out, err := cmd.CombinedOutput()
		if err != nil {
			builtSpillway.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if builtSpillway.err != nil {
		t.Fatalf("build cmd/spillway: %v", builtSpillway.err)
	}
	return bin
}

var controlListens = regexp.MustCompile(`msg=listening control=(\S+)`)

// StartControl starts a control with a migrated database on loopback, with nothing in its environment but env
// ("NAME=value"), and waits until its API answers.
func StartControl(t testing.TB, env ...string) *Control {
	t.Helper()
	c := LaunchControl(t, env...)
	Await(t, "the control's readiness", func() error {
		select {
		case <-c.ended:
			t.Fatalf("the control ended with %v:\n%s", c.ProcessState, c.Output())
		default:
		}
		return c.Ready()
	})
	return c
}

// LaunchControl is StartControl without the wait. The URL is empty until Ready finds it.
func LaunchControl(t testing.TB, env ...string) *Control {
	t.Helper()
	cmd := exec.Command(SpillwayBin(t), "control", "serve", "--migrate")
	cmd.Env = append([]string{"CONTROL_LISTEN=127.0.0.1:0", "GORACE=halt_on_error=1", "TMPDIR=" + os.TempDir()}, env...)
	return &Control{Process: Start(t, cmd)}
}

// Ready finds the URL in the log and asks /readyz. The error is nil once the answer is good.
func (c *Control) Ready() error {
	listens := controlListens.FindStringSubmatch(c.Output())
	if listens == nil {
		return fmt.Errorf("it does not log where it listens:\n%s", c.Output())
	}
	c.URL = "http://" + listens[1]
	return ready(listens[1])
}
