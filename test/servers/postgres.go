package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Postgres is a PostgreSQL server of the test's own, with one empty database.
type Postgres struct {
	URL  string // of the database
	addr string
	bin  string // folder of its programs
	dir  string
	data string // folder in dir
	cmd  *Process

	shared   bool // with other tests: it is not stopped
	settings []string
}

// StartPostgres makes a cluster in a temporary folder, starts it, and stops it when the test ends. Where the test runs
// as root, which PostgreSQL refuses, it runs as the system's user without rights. With settings (name=value) it is
// meant to hold much, and its folder is on the disk, else in memory where there is room.
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	bin := postgresPrograms(t)
	where := memory()
	if len(settings) > 0 {
		where = ""
	}
	dir, err := os.MkdirTemp(where, "pg")
	if err != nil {
		t.Fatalf("temporary folder for PostgreSQL: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	p := &Postgres{bin: bin, dir: dir, data: dir + "/data", settings: settings}
	giveAway(t, dir)
	out, err := p.command("initdb", "--pgdata", p.data, "--username", "spillway", "--auth", "trust", "--no-sync",
		"--encoding", "UTF8", "--locale", "C").CombinedOutput()
	if err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	p.listen(t)
	return p
}

// listen starts the server at an address of its own.
func (p *Postgres) listen(t testing.TB) {
	t.Helper()
	p.addr = FreeAddr(t)
	p.URL = "postgres://spillway@" + p.addr + "/postgres?sslmode=disable"
	p.Start(t)
}

// giveAway makes the user without rights the owner of a folder, where the test runs as root.
func giveAway(t testing.TB, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	owner, err := user.Lookup("nobody")
	if err != nil {
		t.Fatalf("look up the user nobody: %v", err)
	}
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	err = os.Chown(dir, uid, gid)
	if err != nil {
		t.Fatalf("give away the folder of PostgreSQL: %v", err)
	}
}

// command is one of the programs of PostgreSQL. It dies with the test process.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	return p.as(filepath.Join(p.bin, name), args...)
}

// as is a program that runs as the user whom the server runs as.
func (p *Postgres) as(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	if os.Getuid() == 0 {
		cmd = exec.Command("setpriv",
			append([]string{"--reuid=nobody", "--regid=nogroup", "--clear-groups", "--pdeathsig", "KILL", path},
				args...)...)
	}
	cmd.Dir = p.dir
	return cmd
}

// Start starts the server, also after Kill, with what it had.
func (p *Postgres) Start(t testing.TB) {
	t.Helper()
	_, port, _ := net.SplitHostPort(p.addr)
	args := []string{"-D", p.data, "-p", port, "-h", "127.0.0.1", "-k", p.dir}
	for _, setting := range append([]string{"fsync=off", "full_page_writes=off", "shared_buffers=16MB",
		"max_connections=60"}, p.settings...) {
		args = append(args, "-c", setting)
	}
	p.cmd = Start(t, p.command("postgres", args...))
	t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT); <-p.cmd.ended }) // its children end with it
	Await(t, "PostgreSQL on "+p.addr, func() error {
		out, err := p.command("pg_isready", "-h", p.dir, "-p", port).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s\n%s", err, out, p.cmd.Output())
		}
		return nil
	})
}

// Kill ends the server and all its children at once, as a crash does, and waits until it is gone.
func (p *Postgres) Kill(t testing.TB) {
	t.Helper()
	if p.shared {
		t.Fatal("other tests use this PostgreSQL: a test that stops it takes StartPostgres")
	}
	p.cmd.Send(t, syscall.SIGQUIT)
	p.cmd.Exit(t)
}
