package servers

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Sidecar is the sidecar's own program, started by a test.
type Sidecar struct {
	HTTP  string // host:port of /json and the probes
	GRPC  string // host:port of the rate limit service
	Debug string // host:port of /metrics and /rlconfig
	Log   *Log   // what it wrote to its standard output and error
	cmd   *exec.Cmd
	ended chan struct{}
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

// SidecarBin builds cmd/sidecar once per test process and returns its path. A test binary with the race detector builds a
// sidecar with it, too.
func SidecarBin(t testing.TB) string {
	t.Helper()
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

// StartSidecar starts the sidecar on free loopback ports with nothing in its environment but env ("NAME=value"), which may
// override the ports too, and waits until it is ready.
func StartSidecar(t testing.TB, env ...string) *Sidecar {
	t.Helper()
	s := &Sidecar{HTTP: FreeAddr(t), GRPC: FreeAddr(t), Debug: FreeAddr(t), Log: new(Log), ended: make(chan struct{})}
	cmd := exec.Command(SidecarBin(t))
	cmd.Env = append([]string{
		"PORT=" + port(s.HTTP), "GRPC_PORT=" + port(s.GRPC), "DEBUG_PORT=" + port(s.Debug),
		"GORACE=halt_on_error=1", "TMPDIR=" + os.TempDir(),
	}, env...)
	cmd.Stdout, cmd.Stderr = s.Log, s.Log
	s.cmd = Start(t, cmd)
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of the sidecar:\n%s", s.Log)
		}
	})
	Await(t, "the sidecar's readiness", func() error {
		select {
		case <-s.ended:
			return fmt.Errorf("it ended with %v:\n%s", s.cmd.ProcessState, s.Log)
		default:
			return ready(s.HTTP)
		}
	})
	return s
}

// Signal sends a signal: SIGHUP reloads the rules, SIGTERM drains, SIGSTOP and SIGCONT hang and wake it.
func (s *Sidecar) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	err := s.cmd.Process.Signal(signal)
	if err != nil {
		t.Fatalf("send %v to the sidecar: %v", signal, err)
	}
}

// Kill ends it at once and waits until it is gone.
func (s *Sidecar) Kill(t testing.TB) {
	t.Helper()
	s.Signal(t, syscall.SIGKILL)
	s.Wait(t)
}

// Wait waits for the end, ten seconds at most, and returns the exit code, -1 after a signal.
func (s *Sidecar) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(10 * time.Second):
		t.Fatal("the sidecar still runs after 10 s")
		return -1
	}
}

func ready(addr string) error {
	r, err := http.Get("http://" + addr + "/readyz")
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

func port(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// Log collects what a child writes. The zero value is empty; it may be used by several goroutines.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the log.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
