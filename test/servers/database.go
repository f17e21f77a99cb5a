package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// clusterVar names the folder with the socket of the PostgreSQL that all packages of a run share. make test sets it.
const clusterVar = "SPILLWAY_TEST_POSTGRES"

var databases atomic.Int64

// Database makes an empty database that goes with the test. It is in the cluster that all packages share, or in one of
// the test's own without that. A test that stops PostgreSQL or needs settings takes StartPostgres.
func Database(t testing.TB) *Postgres {
	t.Helper()
	dir := os.Getenv(clusterVar)
	if dir == "" {
		return StartPostgres(t)
	}
	p := &Postgres{bin: postgresPrograms(t), dir: dir, shared: true}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	p.run(t, "createdb", "--host", dir, "--username", "spillway", "--template", "template0", name)
	t.Cleanup(func() { p.run(t, "dropdb", "--host", dir, "--username", "spillway", "--force", name) })
	p.URL = fmt.Sprintf("postgres://spillway@/%s?host=%s&sslmode=disable", name, dir)
	return p
}

// run runs one of the programs of PostgreSQL.
func (p *Postgres) run(t testing.TB, name string, args ...string) {
	t.Helper()
	out, err := p.command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// postgresPrograms is the folder with the programs of the newest PostgreSQL.
func postgresPrograms(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		missing("PostgreSQL", "apt-get install postgresql, or make demo-tools")
	}
	return filepath.Dir(found[len(found)-1])
}
