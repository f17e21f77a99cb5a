// Package servers starts the real servers that tests need, as children of the test process on loopback, and stops them.
package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Redis is a redis-server of the test's own, without persistence.
type Redis struct {
	Addr   string // host:port on loopback
	Socket string // path of its Unix socket
	bin    string
	dir    string
	cmd    *Process

	first    []string // arguments before all others
	settings []string
	begin    []string // a command that it gets after each start; empty: none
}

// redisVar names the program to run as redis-server, such as another version or Valkey. make test-stores sets it.
const redisVar = "SPILLWAY_TEST_REDIS"

// redisBin is the program of the servers of Redis.
func redisBin() string {
	if bin := os.Getenv(redisVar); bin != "" {
		return bin
	}
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		missing("redis-server", "apt-get install redis-server, or make demo-tools")
	}
	return bin
}

// StartRedis starts a redis-server and stops it when the test ends. More settings follow as in its command line. With
// --tls-cert-file and without --tls-port, there is nothing but TLS at its address and among servers.
func StartRedis(t testing.TB, settings ...string) *Redis {
	t.Helper()
	return startRedis(t, FreeAddr, &Redis{settings: settings})
}

// startRedis starts a server that has its settings, at an address of the caller's choice.
func startRedis(t testing.TB, free func(testing.TB) string, r *Redis) *Redis {
	t.Helper()
	dir, err := os.MkdirTemp(memory(), "rds")
	if err != nil {
		t.Fatalf("temporary folder for redis-server: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.Socket, r.bin, r.dir = filepath.Join(dir, "s"), redisBin(), dir
	for range portTries {
		r.Addr = free(t)
		if err = r.start(t); err == nil {
			return r
		}
	}
	t.Fatalf("redis-server does not start: %v", err)
	return nil
}

// memory is a folder whose files are in memory, or "" if none has room for them. A server that waits for a busy disk,
// be it for a line about a slot that moves, answers no client meanwhile.
func memory() string {
	const folder, room = "/dev/shm", 1 << 30
	var fs syscall.Statfs_t
	err := syscall.Statfs(folder, &fs)
	if err != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return ""
	}
	return folder
}

// portTries is how often a server is started on another port: between finding a free one and listening on it, another
// program else may have taken it.
const portTries = 10

// Start starts the server again after Kill, empty, at the same address.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	err := r.start(t)
	if err != nil {
		t.Fatalf("start redis-server again: %v", err)
	}
}

// start fails when the server ends instead of answering. The answer counts over its own socket, because another server
// may answer at the address.
func (r *Redis) start(t testing.TB) error {
	t.Helper()
	_, port, _ := net.SplitHostPort(r.Addr)
	args := []string{"--bind", "127.0.0.1", "--unixsocket", r.Socket, "--save", "", "--appendonly", "no", "--dir",
		r.dir}
	r.cmd = Child(t, r.bin, slices.Concat(r.first, args, r.listen(port), r.settings)...)
	var ended error
	Await(t, "redis-server on "+r.Addr, func() error {
		if !r.lives() {
			ended = fmt.Errorf("it ended: %s", r.cmd.Output())
			return nil
		}
		return r.ping()
	})
	if ended == nil && len(r.begin) > 0 {
		r.Do(t, r.begin...)
	}
	return ended
}

// listen is the settings of the port at its address.
func (r *Redis) listen(port string) []string {
	if len(r.security()) == 0 || slices.Contains(r.settings, "--tls-port") {
		return []string{"--port", port}
	}
	return []string{"--port", "0", "--tls-port", port, "--tls-replication", "yes", "--tls-cluster", "yes"}
}

// security is those of its settings that are about TLS.
func (r *Redis) security() []string {
	var all []string
	for pair := range slices.Chunk(r.settings, 2) {
		if strings.HasPrefix(pair[0], "--tls-") {
			all = append(all, pair...)
		}
	}
	return all
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

// lives reports whether the process is there, be it hanging.
func (r *Redis) lives() bool {
	select {
	case <-r.cmd.ended:
		return false
	default:
		return true
	}
}

// ping succeeds when the server answers, also when it refuses users that the test did not name.
func (r *Redis) ping() error {
	got, err := r.text("PING")
	if err != nil && strings.Contains(err.Error(), "NOAUTH") {
		return nil
	}
	if err == nil && got != "PONG" {
		return fmt.Errorf("PING answered %q", got)
	}
	return err
}
