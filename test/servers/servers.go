package servers

import (
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Child starts a program that dies with the test process and is killed when the test ends. Its output goes to the
// test's log when the test failed.
func Child(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	return Start(t, exec.Command(bin, args...))
}

// Start is Child for a command that is set up already (environment, folder).
func Start(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := os.CreateTemp("", "child")
	if err != nil {
		t.Fatalf("file for the output of %s: %v", cmd.Path, err)
	}
	os.Remove(out.Name())
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	var once sync.Once
	t.Cleanup(func() {
		once.Do(func() {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		})
		if t.Failed() {
			b := make([]byte, 16<<10)
			n, _ := out.ReadAt(b, 0)
			t.Logf("output of %s:\n%s", cmd.Path, b[:n])
		}
		out.Close()
	})
	return cmd
}

// FreeAddr returns a loopback address that nothing listened on a moment ago.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Await calls try until it succeeds, for ten seconds at most, and fails the test with its last error.
func Await(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not there after 10 s: %v", what, err)
		}
		<-tick.C
	}
}
