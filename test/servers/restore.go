package servers

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Folder makes a folder beside the server's data that the server and Script may write.
func (p *Postgres) Folder(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(p.dir, name)
	err := os.Mkdir(dir, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	giveAway(t, dir)
	return dir
}

// Script is a script of the repository that runs as the user whom the server runs as, with the server's programs and
// address in its environment. It runs from a copy, because that user may not see the repository.
func (p *Postgres) Script(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(p.dir, filepath.Base(path))
	text, err := os.ReadFile(filepath.Join(Root(t), path))
	if err == nil {
		err = os.WriteFile(file, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(p.addr)
	cmd := p.as(file, args...)
	cmd.Env = []string{"PATH=" + p.bin + ":" + os.Getenv("PATH"), "PGHOST=" + p.dir, "PGPORT=" + port,
		"PGUSER=spillway"}
	return cmd
}

// Destroy kills the server, and removes its data.
func (p *Postgres) Destroy(t testing.TB) {
	t.Helper()
	p.Kill(t)
	err := os.RemoveAll(p.data)
	if err != nil {
		t.Fatal(err)
	}
}

// Restored starts a server on another data folder, with settings (name=value) of its own, at an address of its own.
func (p *Postgres) Restored(t testing.TB, data string, settings ...string) *Postgres {
	t.Helper()
	r := &Postgres{bin: p.bin, dir: p.dir, data: data, settings: settings}
	r.listen(t)
	return r
}

// StartIn starts the server again after Kill with what is in a folder, at the same address, with other settings.
func (r *Redis) StartIn(t testing.TB, dir string, settings ...string) {
	t.Helper()
	r.dir, r.settings = dir, settings
	r.Start(t)
}

// Pid is the process id of the server, whose children serve connections.
func (p *Postgres) Pid() int { return p.cmd.Process.Pid }
