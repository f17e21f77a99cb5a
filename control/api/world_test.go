package api

import (
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// migrated opens a database with the newest schema and the domain shop.
func migrated(t *testing.T) *database.DB {
	t.Helper()
	d := must.Get(database.Open(servers.Database(t).URL, database.PoolSizes{}))(t)
	t.Cleanup(d.Close)
	must.Get(d.Migrate(t.Context(), 0))(t)
	run(t, d, `INSERT INTO domains (name, created_by) VALUES ('shop', 'test')`)
	return d
}

func run(t *testing.T, d *database.DB, sql string) {
	t.Helper()
	_, err := d.Tasks.Exec(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
