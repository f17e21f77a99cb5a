// Package servers starts the real servers that tests need, as children of the test process on loopback, and stops them.
package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Redis is a redis-server of the test's own, without persistence.
type Redis struct {
	Addr   string // host:port on loopback
	Socket string // path of its Unix socket
	bin    string
	args   []string
	cmd    *Process
}

// StartRedis starts a redis-server and stops it when the test ends. More settings follow as in its command line.
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is missing: install the package redis-server, or run make test, which does: %v", err)
	}
	dir, err := os.MkdirTemp("", "rds")
	if err != nil {
		t.Fatalf("temporary folder for redis-server: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &Redis{Addr: FreeAddr(t), Socket: filepath.Join(dir, "s")}
	_, port, _ := net.SplitHostPort(r.Addr)
	r.bin = bin
	r.args = append([]string{"--bind", "127.0.0.1", "--port", port, "--unixsocket", r.Socket, "--save", "", "--appendonly", "no", "--dir", dir}, settings...)
	r.Start(t)
	return r
}

// Start starts the server again after Kill, empty, at the same address.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	r.cmd = Child(t, r.bin, r.args...)
	Await(t, "redis-server on "+r.Addr, func() error { return ping(r.Addr) })
}

// Kill ends the server at once and waits until it is gone.
func (r *Redis) Kill(t testing.TB) {
	t.Helper()
	r.cmd.End(t)
}

// Hang stops the server so that it answers nothing until Signal(SIGCONT).
func (r *Redis) Hang(t testing.TB) {
	t.Helper()
	r.cmd.Hang(t)
}

// Pid is the process id of the server.
func (r *Redis) Pid() int { return r.cmd.Process.Pid }

// Signal sends a signal to the server: SIGSTOP and SIGCONT hang and wake it, SIGKILL ends it.
func (r *Redis) Signal(s syscall.Signal) error { return r.cmd.Process.Signal(s) }

func ping(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	buf := make([]byte, 16)
	n, err := c.Read(buf)
	if err != nil {
		return err
	}
	got := string(buf[:n])
	if got != "+PONG\r\n" && !strings.HasPrefix(got, "-NOAUTH") {
		return fmt.Errorf("PING answered %q", got)
	}
	return nil
}
