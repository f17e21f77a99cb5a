package archive

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// testMoves archives what is old enough, reads it back in each way, and lets it grow old.
func testMoves(t *testing.T, w *world) {
	ctx := context.Background()
	for _, month := range []string{"2026-05", "2026-08"} {
		w.partition(month)
		w.fill(month, 3, 40, "a-1")
	}
	before := w.rowsOf("events")
	done := w.once()
	if done.Files != 6 || done.Rows != 120 || !slices.Equal(done.Partitions, []string{"events_2026_05"}) ||
		w.partitions() != 1 {
		t.Errorf("archived %+v, and %d partitions are left", done, w.partitions())
	}
	if after := w.whole(); after != before {
		t.Errorf("database and archive together have %+v, want %+v", after, before)
	}
	if again := w.once(); again.Files != 0 || again.Deleted != 0 {
		t.Errorf("a second run did %+v", again)
	}
	w.readFiles()
	w.ask()
	wrong, err := Verify(ctx, w.a.store, Days{}, func(Progress) {}, func(Verdict) error { return nil })
	if err != nil || wrong != 0 {
		t.Errorf("verify finds %d wrong files: %v", wrong, err)
	}
	// the first of May is seven years ago, and so are the days until the third
	w.a.now = func() time.Time { return today.AddDate(6, 8, 1) }
	w.exec(`DROP TABLE events_2026_08`)
	if old := w.once(); old.Deleted == 0 {
		t.Errorf("after seven years %+v was done", old)
	}
	left, err := w.a.store.List(ctx, "")
	if rows := w.rowsOf("archives").rows; err != nil || len(left) != 0 || rows != 0 {
		t.Errorf("after seven years the store has %v and the table %d rows: %v", left, rows, err)
	}
}

// readFiles looks at the names of files, and holds the table against the manifests.
func (w *world) readFiles() {
	w.t.Helper()
	all, err := List(context.Background(), w.a.store, Days{})
	if err != nil || len(all) != 6 {
		w.t.Fatalf("%d files: %v", len(all), err)
	}
	for _, m := range all {
		if !strings.HasPrefix(m.Path, "region=eu%2Fwest/year=2026/month=05/day=0") &&
			!strings.HasPrefix(m.Path, "region=__HIVE_DEFAULT_PARTITION__/year=2026/month=05/day=0") {
			w.t.Errorf("a file is at %s", m.Path)
		}
		var rows int64
		err = w.a.pool.QueryRow(context.Background(),
			`SELECT rows FROM archives WHERE path = $1 AND checksum = $2 AND bytes = $3 AND sealed AND day =
			  $4::text::date`, m.Path, m.Checksum, m.Bytes, m.Day).Scan(&rows)
		if err != nil || rows != 20 || m.Rows != 20 || !slices.Equal(m.Columns, columns) {
			w.t.Errorf("%+v is listed with %d rows: %v", m, rows, err)
		}
	}
}

// ask asks the files.
func (w *world) ask() {
	w.t.Helper()
	eu := "eu/west"
	day := time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ask  Filter
		want int
	}{
		"all":       {Filter{}, 120},
		"domain":    {Filter{Domain: "api"}, 24},
		"identity":  {Filter{Identities: []string{"user:ann", "user:unheard"}}, 12},
		"tenant":    {Filter{Identities: []string{"tenant:acme"}}, 12},
		"none":      {Filter{Identities: []string{"user:unheard"}}, 0},
		"outcome":   {Filter{Outcome: "refused", Rule: "per-user"}, 42},
		"region":    {Filter{Region: &eu}, 60},
		"day":       {Filter{From: day, To: day.AddDate(0, 0, 1)}, 40},
		"half":      {Filter{From: day.Add(12 * time.Hour), To: day.AddDate(0, 0, 1)}, 20},
		"no rule":   {Filter{Rule: "other"}, 0},
		"from then": {Filter{From: day}, 80},
	} {
		got := 0
		err := Query(context.Background(), w.a.store, c.ask, func(*Row) error { got++; return nil }, func(Progress) {})
		if err != nil || got != c.want {
			w.t.Errorf("%s: %d events, want %d: %v", name, got, c.want, err)
		}
	}
}

// testLate adds events between the steps, and after the partition is gone. Each is in the archive once.
func testLate(t *testing.T, w *world) {
	w.partition("2026-05")
	w.fill("2026-05", 2, 10, "a-1")
	w.a.step = func(done string) {
		if done == "file noted" {
			w.a.step = func(string) {}
			w.fill("2026-05", 2, 6, "late-1")
		}
	}
	_, err := w.a.Once(context.Background())
	if !errors.Is(err, errChanged) || w.partitions() != 1 {
		t.Fatalf("with rows that came meanwhile: %v, %d partitions", err, w.partitions())
	}
	before := w.rowsOf("events")
	w.once()
	if after := w.whole(); after != before || w.partitions() != 0 {
		t.Errorf("there are %+v, want %+v", after, before)
	}
	w.partition("2026-05")
	w.fill("2026-05", 1, 4, "later-1")
	w.once()
	if after := w.whole(); after.rows != before.rows+4 || w.partitions() != 0 {
		t.Errorf("with rows after the partition was dropped there are %d, want %d", after.rows, before.rows+4)
	}
}

// testDamage changes files behind the archiver's back.
func testDamage(t *testing.T, w *world) {
	if strings.HasPrefix(w.place.At, "s3:") {
		return // a bucket is checked by the same code
	}
	ctx := context.Background()
	w.partition("2026-05")
	w.fill("2026-05", 3, 40, "a-1")
	w.once()
	all, err := List(ctx, w.a.store, Days{})
	if err != nil || len(all) != 6 {
		t.Fatal(len(all), err)
	}
	other := all[5]
	other.Checksum = all[0].Checksum
	var mismatch *Mismatch
	if err := check(ctx, w.a.store, &other); !errors.As(err, &mismatch) {
		t.Errorf("rows with another checksum: %v, want a mismatch", err)
	}
	damage(t, filepath.Join(w.place.At, all[0].Path), func(b []byte) []byte { return b[:len(b)/2] })
	damage(t, filepath.Join(w.place.At, all[1].Path), func(b []byte) []byte {
		b[bytes.Index(b, []byte("per-user"))] ^= 1 // of a row, and not of a filter
		return b
	})
	swap(t, filepath.Join(w.place.At, all[2].Path), filepath.Join(w.place.At, all[3].Path))
	must.Do(t, os.Remove(filepath.Join(w.place.At, all[4].Path)))
	wrong, err := Verify(ctx, w.a.store, Days{}, func(Progress) {}, func(v Verdict) error {
		if (v.Problem == "") != (v.Path == all[5].Path) {
			t.Errorf("%s: %q", v.Path, v.Problem)
		}
		return nil
	})
	if err != nil || wrong != 5 {
		t.Errorf("%d files are found wrong: %v", wrong, err)
	}
	_, err = w.a.Restore(ctx, Days{}, func(Progress) {})
	if rows := w.rowsOf("events_restored").rows; err == nil || rows != 0 {
		t.Errorf("damaged files are restored: %d rows, %v", rows, err)
	}
}

func damage(t *testing.T, path string, f func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func swap(t *testing.T, a, b string) {
	t.Helper()
	must.Do(t, errors.Join(os.Rename(a, a+".x"), os.Rename(b, a), os.Rename(a+".x", b)))
}

// testRefused is refused, and stays.
func testRefused(t *testing.T, w *world) {
	w.partition("2026-05")
	w.fill("2026-05", 1, 10, "a-1")
	w.exec(`ALTER TABLE events ADD COLUMN planet text`)
	_, err := w.a.Once(context.Background())
	if err == nil || !strings.Contains(err.Error(), "planet") || w.partitions() != 1 {
		t.Errorf("a column that files do not have: %v, %d partitions", err, w.partitions())
	}
	w.exec(`ALTER TABLE events DROP COLUMN planet`)
	err = w.a.Alone(context.Background(), func(ctx context.Context) error { _, err := w.a.Once(ctx); return err })
	if !errors.Is(err, ErrBusy) {
		t.Errorf("two at the same time: %v", err)
	}
}

// TestPlacesThatAreNone are refused.
func TestPlacesThatAreNone(t *testing.T) {
	for _, at := range []string{"", "ftp://x", "s3://", "s3:///x"} {
		if _, err := OpenStore(Place{At: at}); err == nil {
			t.Errorf("the archive may be %q", at)
		}
	}
}
