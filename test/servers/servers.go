package servers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// missing ends the tests of this package with one line, because each of them would fail for the same reason.
func missing(what, get string) {
	fmt.Fprintf(os.Stderr, "%s is missing, and these tests need it. Get it by: %s\n", what, get)
	os.Exit(1)
}

// Process is a child of the test.
type Process struct {
	*exec.Cmd
	out   *os.File
	ended chan struct{} // closed when it is gone
}

// Child starts a program that dies with the test process and is killed when the test ends. Its output goes to the
// test's log when the test failed.
func Child(t testing.TB, bin string, args ...string) *Process {
	t.Helper()
	return Start(t, exec.Command(bin, args...))
}

// Start is Child for a command that is set up already (environment, folder). Only the Process waits for its end.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
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
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	p := &Process{Cmd: cmd, out: out, ended: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
		if t.Failed() {
			t.Logf("output of %s:\n%s", cmd.Path, p.Output())
		}
		out.Close()
	})
	return p
}

// Output is what the child wrote so far, unless it was set up to write elsewhere.
func (p *Process) Output() string {
	info, err := p.out.Stat()
	if err != nil {
		return ""
	}
	text := make([]byte, info.Size())
	n, _ := p.out.ReadAt(text, 0)
	return string(text[:n])
}

// Hang stops the child with SIGSTOP and waits until all its threads stand. SIGCONT wakes it.
func (p *Process) Hang(t testing.TB) {
	t.Helper()
	p.Send(t, syscall.SIGSTOP)
	Await(t, p.Path+" to stand still", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Process.Pid))
		for _, thread := range threads {
			text, err := os.ReadFile(thread)
			// The state follows the name, which is in parentheses and may hold anything.
			if err == nil && !strings.HasPrefix(string(text[bytes.LastIndexByte(text, ')')+1:]), " T") {
				return fmt.Errorf("%s is %s", thread, text)
			}
		}
		return err
	})
}

// Send sends a signal.
func (p *Process) Send(t testing.TB, signal syscall.Signal) {
	t.Helper()
	err := p.Process.Signal(signal)
	if err != nil {
		t.Fatalf("send %v to %s: %v", signal, p.Path, err)
	}
}

// End kills the child and waits until it is gone.
func (p *Process) End(t testing.TB) {
	t.Helper()
	p.Send(t, syscall.SIGKILL)
	p.Exit(t)
}

// longEnough is how long a test waits for what has to happen. Only what hangs takes longer, also on a machine that is
// starved.
const longEnough = time.Minute

// Exit waits for the end, and returns the exit code, -1 after a signal.
func (p *Process) Exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(longEnough):
		t.Fatalf("%s still runs after %v", p.Path, longEnough)
		return -1
	}
}

// FreeAddr returns a loopback address that nothing listens on. Its port is not one of those that Linux gives to
// outgoing connections: one of them could take it while its server is down. The test holds the UDP port of the same
// number until it ends, so no other call, in this process or another, returns the address meanwhile.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 11000+rand.IntN(10000))
		held, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			held.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { held.Close() })
		return addr
	}
	t.Fatal("no free port among 100")
	return ""
}

// Await calls try until it succeeds, for a minute at most, and fails the test with its last error.
func Await(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(longEnough)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not there after %v: %v", what, longEnough, err)
		}
		<-tick.C
	}
}

// Inside waits until the current window of that length has some time left, so that a case does not fall into two
// windows.
func Inside(t testing.TB, window, rest time.Duration) {
	t.Helper()
	Await(t, "a window with time left", func() error {
		now := time.Now()
		if left := now.Truncate(window).Add(window).Sub(now); left < rest {
			return fmt.Errorf("%v left of %v", left, window)
		}
		return nil
	})
}
