package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// dies runs an archiver in a process of its own, which is killed after so many steps, and returns the step after which
// that was. It is empty where there are fewer steps.
func (w *world) dies(steps int, env ...string) string {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "ARCHIVE_CHILD="+w.url, "ARCHIVE_AT="+w.place.At,
		"ARCHIVE_ENDPOINT="+w.place.Endpoint, fmt.Sprint("ARCHIVE_STEPS=", steps))...)
	out, err := cmd.Output()
	if err == nil {
		return ""
	}
	done, killed := strings.CutPrefix(strings.TrimSpace(string(out)), "killed after: ")
	if !killed {
		w.t.Fatalf("the child: %v: %s", err, out)
	}
	servers.Await(w.t, "the end of the child's session of PostgreSQL", func() error {
		return w.a.Alone(context.Background(), func(context.Context) error { return nil })
	})
	return done
}

// testKilled kills the archiver after each of its steps in turn, and lets another one continue. In make test each kind
// of step is killed once, in make test-control each step.
func testKilled(t *testing.T, w *world) {
	if !full && w.place.Endpoint != "" {
		return
	}
	seen, days := map[string]bool{}, 1
	if full {
		days = 3
	}
	for n := 1; ; n++ {
		w.empty()
		w.partition("2026-05")
		w.fill("2026-05", days, 10, fmt.Sprint("a-", n))
		before := w.whole()
		at := w.dies(n)
		if at == "" {
			break
		}
		if at == "file noted" && !seen[at] { // what comes late makes the next run write these rows anew
			w.fill("2026-05", 1, 4, fmt.Sprint("late-", n))
			before.digest, before.rows = "", before.rows+4
		}
		seen[at] = true
		w.once()
		after := w.whole()
		if before.digest == "" {
			after.digest = ""
		}
		if after != before || w.partitions() != 0 {
			t.Errorf("killed after %q: there are %+v, want %+v, and %d partitions", at, after, before, w.partitions())
		}
		w.tidy()
	}
	for _, step := range []string{"rows counted", "rows exported", "file stored", "file read back", "manifest stored",
		"file noted", "files sealed", "partition dropped, not committed", "partition dropped"} {
		if !seen[step] {
			t.Errorf("no archiver was killed after %q", step)
		}
	}
}

// empty empties the archive.
func (w *world) empty() {
	w.t.Helper()
	ctx := context.Background()
	names, err := w.a.store.List(ctx, "")
	for _, name := range names {
		err = errors.Join(err, w.a.store.Remove(ctx, name))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.exec(`TRUNCATE archives; DROP TABLE IF EXISTS events_2026_05`)
}

// tidy checks that store and table agree: a manifest for each file, a sealed row for each manifest.
func (w *world) tidy() {
	w.t.Helper()
	ctx := context.Background()
	names, err := w.a.store.List(ctx, "")
	all, wrong := List(ctx, w.a.store, Days{})
	var rows, sealed int
	lost := w.a.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE sealed) FROM archives`).Scan(&rows, &sealed)
	if err != nil || wrong != nil || lost != nil || len(names) != 2*len(all) || rows != len(all) || sealed != rows {
		w.t.Errorf("%d files, %d manifests, %d rows, %d sealed: %v %v %v", len(names), len(all), rows, sealed, err,
			wrong, lost)
	}
}

// testEraseKilled erases a person from the archive, killed after each step in turn.
func testEraseKilled(t *testing.T, w *world) {
	if !full && w.place.Endpoint != "" {
		return
	}
	ctx := context.Background()
	seen := map[string]bool{}
	for n := 1; ; n++ {
		w.empty()
		w.partition("2026-05")
		w.fill("2026-05", 1, 30, fmt.Sprint("a-", n))
		// a file of its own, which has to go
		w.exec(`UPDATE events SET domain = 'shop', identity = 'user:ann' WHERE region = ''`)
		w.once()
		before := w.whole().rows
		persons, err := w.a.Count(ctx, ann)
		if err != nil || persons == 0 {
			t.Fatal(persons, err)
		}
		at := w.dies(n, "ARCHIVE_ERASE=1")
		seen[at] = true
		if now := w.whole().rows; now > before || now < before-persons {
			t.Errorf("killed after %q: readers see %d rows, and there were %d", at, now, before)
		}
		err = w.a.Alone(ctx, func(ctx context.Context) error { _, err := w.a.Erase(ctx, ann); return err })
		left, wrong := w.a.Count(ctx, ann)
		if err != nil || wrong != nil || left != 0 {
			t.Errorf("killed after %q: %d rows are left: %v %v", at, left, err, wrong)
		}
		if after := w.whole().rows; after != before-persons {
			t.Errorf("killed after %q: there are %d rows, want %d without %d", at, after, before-persons, persons)
		}
		w.tidy()
		if at == "" {
			break
		}
	}
	for _, step := range []string{"file stored", "file read back", "manifest stored", "file noted", "row removed",
		"manifest removed", "file removed"} {
		if !seen[step] {
			t.Errorf("no erasure was killed after %q", step)
		}
	}
}

// TestRates archives and reads many rows, and prints how many a second: a million in make test-control.
func TestRates(t *testing.T) {
	perDay := 500
	if full {
		perDay = 250_000
	}
	w := newWorld(t, servers.StartPostgres(t), "rates", false)
	w.partition("2026-05")
	w.fill("2026-05", 4, perDay, "a-1")
	w.exec(`ANALYZE events`)
	rows := float64(4 * perDay)
	rate := func(what string, f func() error) {
		began := time.Now()
		err := f()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s: %.0f rows/s", what, rows/time.Since(began).Seconds())
	}
	rate("archive", func() error { _, err := w.a.Once(context.Background()); return err })
	rate("verify", func() error {
		wrong, err := Verify(context.Background(), w.a.store, Days{}, func(Progress) {},
			func(Verdict) error { return nil })
		if wrong > 0 {
			t.Errorf("%d files are wrong", wrong)
		}
		return err
	})
	rate("query", func() error {
		return Query(context.Background(), w.a.store, Filter{Identities: []string{"user:unheard"}, Domain: "shop"},
			func(*Row) error { return nil }, func(Progress) {})
	})
	rate("query all", func() error {
		return Query(context.Background(), w.a.store, Filter{Rule: "none"}, func(*Row) error { return nil },
			func(Progress) {})
	})
	rate("restore", func() error { _, err := w.a.Restore(context.Background(), Days{}, func(Progress) {}); return err })
	if got := w.rowsOf("events_restored").rows; got != int64(rows) {
		t.Errorf("%d rows are restored", got)
	}
	rate("erase", func() error {
		return w.a.Alone(context.Background(), func(ctx context.Context) error {
			_,
				err := w.a.Erase(ctx, ann)
			return err
		})
	})
}
