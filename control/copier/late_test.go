package copier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/archive"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// TestALateEventOfAnArchivedMonth sends an event of a month whose partition is in the archive, and one of now behind
// it.
func TestALateEventOfAnArchivedMonth(t *testing.T) {
	w := newWorld(t)
	month := time.Now().UTC()
	month = time.Date(month.Year(), month.Month(), 1, 0, 0, 0, 0, time.UTC)
	w.now = func() time.Time { return month.AddDate(0, 0, 9) } // so that the month before is less than 28 days past
	w.drain()
	store := must.Get(archive.OpenStore(archive.Place{At: t.TempDir()}))(t)
	a := must.Get(archive.New(archive.Config{DatabaseURL: w.postgres.URL, Store: store, KeepEvents: time.Nanosecond,
		KeepArchives: 24 * 365 * time.Hour, Log: slog.New(slog.DiscardHandler)}))(t)
	defer a.Close()
	if done, err := a.Once(context.Background()); err != nil || len(done.Partitions) != 1 {
		t.Fatalf("archived %v: %v", done.Partitions, err)
	}
	// ten days late, or of a clock that is ten days behind
	w.send("events", eventsOf("slow", 1, month.Add(-time.Hour), 1))
	w.send("events", eventsOf("good", 1, w.now(), 5))
	var err error
	for range 5 {
		_, err = w.round(context.Background(), w.conn)
	}
	if err != nil {
		t.Errorf("the copy fails, again and again: %v", err)
	}
	w.want("events", 6, `SELECT count(*) FROM events`)
}

// TestCountingUsersWaitsForALoad counts the requests of users while a load of users, which locks them by name, has come
// to the first of them.
func TestCountingUsersWaitsForALoad(t *testing.T) {
	w := newWorld(t)
	const users = 50
	name := func(n int) string { return fmt.Sprintf("u%02d", n) }
	w.run(`INSERT INTO domains (name, created_by) VALUES ('api', 'ann')`)
	for n := users - 1; n >= 0; n-- { // a load meets them in another order than they lie
		w.run(`INSERT INTO users (domain, name, updated_by) VALUES ('api', $1, 'x')`, name(n))
	}
	u := &journal.Rows{}
	for n := range users {
		u.Identities = append(u.Identities, journal.Row{Minute: minuteOf(time.Now()), Domain: "api",
			Name: w.cfg.Keys.Identity("user", name(n)), Outcome: "allowed", Requests: 1})
	}
	w.send("usage", journal.Entry{Sidecar: "one", Sequence: 1, Rows: u.Marshal()})
	ctx := context.Background()
	must.Do(t, w.nameAll(ctx, w.conn))
	// as mergeLines does it, in two steps
	const merge = `INSERT INTO profiles AS u (domain, name, quota_hour, updated_by) SELECT 'api', name, 5, 'x' FROM
	  unnest($1::text[]) AS l (name) ORDER BY name
	  ON CONFLICT (domain, kind, name) DO UPDATE SET quota_hour = excluded.quota_hour`
	load, err := w.db.Begin(ctx)
	if err == nil {
		_, err = load.Exec(ctx, merge, []string{name(0)})
	}
	if err != nil {
		t.Fatal(err)
	}
	counted := make(chan error, 1)
	go func() { _, err := w.round(ctx, w.conn); counted <- err }()
	servers.Await(t, "the copy to wait for the load", func() error {
		var waits bool
		err := load.QueryRow(ctx,
			`SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname =
			  current_database())`).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("it does not wait")
		}
		return err
	})
	var rest []string
	for n := 1; n < users; n++ {
		rest = append(rest, name(n))
	}
	_, err = load.Exec(ctx, merge, rest)
	if err == nil {
		err = load.Commit(ctx)
	} else {
		_ = load.Rollback(ctx)
	}
	if err != nil {
		t.Errorf("the load: %v", err)
	}
	if err = <-counted; err != nil {
		t.Errorf("the copy: %v", err)
	}
	w.want("users that are counted", users, `SELECT count(*) FROM users WHERE last_request_at IS NOT NULL`)
}
