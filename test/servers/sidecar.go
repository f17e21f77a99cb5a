package servers

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
)

// Sidecar is the sidecar's own program, started by a test.
type Sidecar struct {
	*Process
	HTTP  string // host:port of /json and the probes
	GRPC  string // host:port of the rate limit service
	Debug string // host:port of /metrics and /rlconfig
}

// built is the program that all tests of this process start.
var built struct {
	sync.Once
	dir string
	err error
}

// Main runs the tests of a package that starts sidecars, and removes what was built for them. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	return code
}

// binVar names the folder with the programs sidecar and spillway that the packages of a run share. make test builds
// them.
const binVar = "SPILLWAY_TEST_BIN"

// shared returns the path of a program that was built for all packages, or "": with the race detector each builds its
// own.
func shared(name string) string {
	if dir := os.Getenv(binVar); dir != "" && !Race {
		return filepath.Join(dir, name)
	}
	return ""
}

// SidecarBin returns the path of the sidecar: the one that all packages share, else cmd/sidecar, built once per test
// process. A test binary with the race detector builds a sidecar with it, too.
func SidecarBin(t testing.TB) string {
	t.Helper()
	if bin := shared("sidecar"); bin != "" {
		return bin
	}
	root := Root(t)
	built.Do(func() {
		built.dir, built.err = os.MkdirTemp("", "sidecar")
		if built.err != nil {
			return
		}
		args := append([]string{"build"}, buildFlags...)
		cmd := exec.Command("go", append(args, "-o", built.dir, "./cmd/sidecar")...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("build cmd/sidecar: %v", built.err)
	}
	return filepath.Join(built.dir, "sidecar")
}

// StartSidecar starts the sidecar on loopback with nothing in its environment but env ("NAME=value"), and waits until
// it is ready. It picks its ports itself and logs them, so the log has to stay at level info and in text.
func StartSidecar(t testing.TB, env ...string) *Sidecar {
	t.Helper()
	return awaitSidecar(t, LaunchSidecar(t, env...))
}

// StartProgram is StartSidecar for a sidecar that was built elsewhere.
func StartProgram(t testing.TB, bin string, env ...string) *Sidecar {
	t.Helper()
	return awaitSidecar(t, launch(t, exec.Command(bin), env))
}

func awaitSidecar(t testing.TB, s *Sidecar) *Sidecar {
	t.Helper()
	Await(t, "the sidecar's readiness", func() error {
		select {
		case <-s.ended:
			t.Fatalf("the sidecar ended with %v:\n%s", s.ProcessState, s.Output())
		default:
		}
		return s.Ready()
	})
	return s
}

// StartUnreadSidecar is StartSidecar on a full disk: each write to its output fails.
func StartUnreadSidecar(t testing.TB, env ...string) *Sidecar {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("a file without room: %v", err)
	}
	return StartSidecarInto(t, full, env...)
}

// StartSidecarInto is StartSidecar with a log that goes to out, which it closes here.
func StartSidecarInto(t testing.TB, out *os.File, env ...string) *Sidecar {
	t.Helper()
	defer out.Close()
	cmd := exec.Command(SidecarBin(t))
	cmd.Stdout, cmd.Stderr = out, out
	at := Sidecar{GRPC: FreeAddr(t), HTTP: FreeAddr(t), Debug: FreeAddr(t)}
	for name, addr := range map[string]string{"GRPC_PORT": at.GRPC, "PORT": at.HTTP, "DEBUG_PORT": at.Debug} {
		_, port, _ := net.SplitHostPort(addr)
		env = append(env, name+"="+port)
	}
	at.Process = launch(t, cmd, env).Process
	return awaitSidecar(t, &at)
}

// LaunchSidecar is StartSidecar without the wait. The addresses are empty until Ready finds them.
func LaunchSidecar(t testing.TB, env ...string) *Sidecar {
	t.Helper()
	return launch(t, exec.Command(SidecarBin(t)), env)
}

func launch(t testing.TB, cmd *exec.Cmd, env []string) *Sidecar {
	t.Helper()
	cmd.Env = append([]string{"PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0", "GORACE=halt_on_error=1",
		"TMPDIR=" + os.TempDir()}, env...)
	return &Sidecar{Process: Start(t, cmd)}
}

// Ready finds the addresses in the log and asks /readyz. The error is nil once the answer is good.
func (s *Sidecar) Ready() error {
	if s.HTTP == "" {
		text := listening.FindStringSubmatch(s.Output())
		if text == nil {
			return fmt.Errorf("it does not log where it listens:\n%s", s.Output())
		}
		s.GRPC, s.HTTP, s.Debug = text[1], text[2], text[3]
	}
	return ready(s.HTTP)
}

var listening = regexp.MustCompile(`msg=listening grpc=(\S+) http=(\S+) debug=(\S+)`)

func ready(addr string) error {
	r, err := pages.Get("http://" + addr + "/readyz")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answered %s: %s", r.Status, body)
	}
	return nil
}
