package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// names is a store that keeps nothing: it notes the names of files.
type names struct {
	Store
	asked []string
}

func (n *names) Put(_ context.Context, name string, _ *os.File) error {
	n.asked = append(n.asked, name)
	return errors.New("no room")
}

// testFull archives into a folder without room, first for a file, then for its manifest: the partition stays, no file
// counts, nothing is left that takes room, and the run after it succeeds.
func testFull(t *testing.T, w *world) {
	if w.place.Endpoint != "" {
		return // a service answers that it is full as it answers any other failure
	}
	w.partition("2026-05")
	w.fill("2026-05", 1, 20, "a-1")
	before := w.whole()
	disk := w.a.store
	first := &names{Store: disk}
	w.a.store = first
	if _, err := w.a.Once(context.Background()); err == nil || len(first.asked) != 1 {
		t.Fatalf("a store without room was asked to keep %v: %v", first.asked, err)
	}
	w.a.store = disk
	for _, name := range []string{first.asked[0], listPath(first.asked[0])} {
		half := filepath.Join(w.place.At, filepath.FromSlash(name)+halfEnding)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(half), 0o750), os.Symlink("/dev/full", half)))
		done, err := w.a.Once(context.Background())
		w.a.count(&done, err)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("without room for %s the run ends with: %v", name, err)
		}
		if _, err = os.Lstat(half); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a half file is left: %v", err)
		}
		found, err := List(context.Background(), disk, Days{})
		if err != nil || len(found) != 0 || w.partitions() != 1 || w.rowsOf("events") != before {
			t.Errorf("without room for %s there are the files %v, %d partitions and %+v of %+v rows: %v", name, found,
				w.partitions(), w.rowsOf("events"), before, err)
		}
	}
	if s := w.a.Stats(); s.Failures != 2 || s.Runs != 0 || !s.LastRun.IsZero() {
		t.Errorf("the statistics are %+v, want two failures", s)
	}
	done, err := w.a.Once(context.Background())
	w.a.count(&done, err)
	if s := w.a.Stats(); err != nil || s.Runs != 1 || s.Partitions != 1 || s.Files != 2 || s.Rows != 20 ||
		s.Bytes == 0 || s.LastRun.IsZero() {
		t.Errorf("the statistics are %+v, want a run that archived 20 rows: %v", s, err)
	}
	if after := w.whole(); after != before || w.partitions() != 0 {
		t.Errorf("there are %+v, want %+v, and %d partitions", after, before, w.partitions())
	}
	w.tidy()
}
