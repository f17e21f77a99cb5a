package rules

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/spillway-mesh/spillway/test/must"
)

// bench runs a watch with a clock of its own and events that the test sends.
type bench struct {
	t      *testing.T
	file   string
	files  *Files
	events chan fsnotify.Event
	loads  atomic.Int64
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, file: filepath.Join(t.TempDir(), "a.yaml"), events: make(chan fsnotify.Event)}
	write(t, domain("d0"), b.file)
	b.files = NewFiles(FilesConfig{Path: b.file})
	n := &notifier{events: b.events, places: places{filepath.Dir(b.file): nil}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &watch{files: b.files, notifier: n, publish: func(Load) { b.loads.Add(1) }}
	go w.loop(ctx)
	b.after(0, 1, "the start")
	return b
}

// change writes the file and sends an event.
func (b *bench) change(name string) {
	b.t.Helper()
	write(b.t, domain(name), b.file)
	b.events <- fsnotify.Event{Name: b.file, Op: fsnotify.Write}
}

// after lets time pass and expects that many loads in all.
func (b *bench) after(pass time.Duration, loads int64, what string) {
	b.t.Helper()
	<-time.After(pass) // on the bubble's clock
	synctest.Wait()
	if got := b.loads.Load(); got != loads {
		b.t.Fatalf("%d loads after %s, want %d", got, what, loads)
	}
}

func TestChangesSettleFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.change("d1")
		b.after(60*time.Millisecond, 1, "a change 60 ms ago")
		b.change("d2")
		b.after(99*time.Millisecond, 1, "a change 99 ms ago")
		b.after(2*time.Millisecond, 2, "a change 101 ms ago")
		b.after(10*time.Second, 2, "a quiet time")
	})
}

func TestChangesWithoutEndAreReadAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 50 {
			b.change("d1")
			<-time.After(50 * time.Millisecond)
		}
		synctest.Wait()
		if b.loads.Load() < 2 {
			t.Errorf("nothing was read during 2.5 s of changes")
		}
	})
}

func TestPollSeesWhatNobodyTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		write(t, domain("d1"), b.file)
		b.after(29*time.Second, 1, "29 s without an event")
		b.after(2*time.Second, 2, "31 s without an event")
		b.after(time.Minute, 2, "a minute without a change")
	})
}

func TestRetryWhileNothingCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		must.Do(t, os.Remove(b.file))
		b.after(31*time.Second, 2, "the file is gone")
		b.after(10*time.Second, 2, "the file is still gone")
		write(t, domain("d1"), b.file)
		b.after(1100*time.Millisecond, 3, "the file is back")
	})
}

func TestReloadNeedsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.files.Reload()
		b.after(0, 2, "a reload")
	})
}

func TestOtherFilesDoNotConcern(t *testing.T) {
	n := &notifier{places: places{"/etc": {"rules": true}, "/etc/rules": nil}}
	for name, expected := range map[string]bool{
		"/etc/passwd": false, "/etc/rules": true, "/etc/rules/a.yaml": true, "/etc/rules/sub/a.yaml": false,
		"/tmp/x": false,
	} {
		if got := n.concerns(fsnotify.Event{Name: name}); got != expected {
			t.Errorf("an event on %s concerns: %v, want %v", name, got, expected)
		}
	}
}
