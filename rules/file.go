package rules

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
)

// FilesConfig sets where rule files are and how closely they are watched. Path or RuntimeRoot must be given.
type FilesConfig struct {
	Path string // a rule file, or a folder whose .yaml and .yml files are read; goes before RuntimeRoot

	RuntimeRoot         string // as in the reference server: all regular files under root/subdirectory/app directory
	RuntimeSubdirectory string
	RuntimeAppDirectory string // "config" unless given
	IgnoreDotFiles      bool   // under RuntimeRoot; names that begin with two dots are never read
	// as in the reference server; both kinds of change are always seen, so it changes nothing
	WatchRoot bool

	MergeDomains bool                       // several files may add to one domain
	Published    func() ([]Document, error) // reads the documents that are published; nil: none are
	SpareDenied  bool                       // domains without charge_denied have it false
	Compile      descriptors.Options        // for descriptors.Compile

	// Guard runs each look at the files and the documents, and may recover from a panic. Nil: it does not.
	Guard func(run func())

	Settle time.Duration // quiet time after a change before files are read; 100 ms unless given
	Poll   time.Duration // safety net where changes are not notified, as on network mounts; 30 s unless given
	Retry  time.Duration // while nothing can be read, or nothing can be watched; 1 s unless given
}

// Files is the source of rules in files. Make it with NewFiles.
type Files struct {
	cfg       FilesConfig
	reload    chan struct{}
	look      chan struct{}
	published published
}

// NewFiles returns a source that has read nothing yet.
func NewFiles(cfg FilesConfig) *Files {
	if cfg.RuntimeAppDirectory == "" {
		cfg.RuntimeAppDirectory = "config"
	}
	if cfg.Guard == nil {
		cfg.Guard = func(run func()) { run() }
	}
	setDefault(&cfg.Settle, 100*time.Millisecond)
	setDefault(&cfg.Poll, 30*time.Second)
	setDefault(&cfg.Retry, time.Second)
	return &Files{cfg: cfg, reload: make(chan struct{}, 1), look: make(chan struct{}, 1),
		published: published{read: cfg.Published}}
}

func setDefault(to *time.Duration, value time.Duration) {
	if *to <= 0 {
		*to = value
	}
}

// Reload makes Watch read and publish everything again, also when nothing has changed. It does not wait.
func (f *Files) Reload() {
	select {
	case f.reload <- struct{}{}:
	default: // one is already asked for, and it will read what is there now
	}
}

// Look makes Watch look for changes now. It does not wait.
func (f *Files) Look() {
	select {
	case f.look <- struct{}{}:
	default: // it is about to look anyway
	}
}

// Watch publishes what the files hold at once, then again whenever their content changes or Reload is called. It
// returns nil once ctx has ended and all that it started has stopped, or an error when the configuration names no files
// at all.
func (f *Files) Watch(ctx context.Context, publish func(Load)) error {
	if f.root() == "" && f.cfg.Published == nil {
		return errors.New("rules: neither a path nor a runtime root is given")
	}
	n := newNotifier()
	defer n.close()
	w := &watch{files: f, notifier: n, publish: publish}
	w.loop(ctx)
	return nil
}

// root is the file or folder that is read.
func (f *Files) root() string {
	if f.cfg.Path != "" || f.cfg.RuntimeRoot == "" {
		return f.cfg.Path
	}
	return filepath.Join(f.cfg.RuntimeRoot, f.cfg.RuntimeSubdirectory, f.cfg.RuntimeAppDirectory)
}

// watch is one run of Watch. One goroutine owns it.
type watch struct {
	files    *Files
	notifier *notifier
	publish  func(Load)

	last    digest    // of what was published last
	known   bool      // last is set
	failing bool      // nothing could be read
	force   bool      // publish even when nothing has changed
	since   time.Time // of the first change not yet read; zero: none
}

func (w *watch) loop(ctx context.Context) {
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.files.reload:
			w.force = true
		case <-w.files.look:
		case event := <-w.notifier.events:
			if w.notifier.concerns(event) {
				w.changed(settle)
			}
			continue
		case <-w.notifier.errors:
			w.changed(settle) // events were lost: anything may have changed
			continue
		case <-settle.C:
		case <-poll.C:
		}
		w.files.cfg.Guard(func() { w.refresh(settle) })
		poll.Reset(w.pause())
	}
}

// pause is how long to wait before files are read without an event.
func (w *watch) pause() time.Duration {
	if w.failing || w.notifier.broken != nil {
		return w.files.cfg.Retry
	}
	return w.files.cfg.Poll
}

// changed waits until changes have settled: for a quiet moment, but not for ever where files change all the time.
func (w *watch) changed(settle *time.Timer) {
	const patience = 10 // quiet times
	now := time.Now()
	if w.since.IsZero() {
		w.since = now
	}
	end := w.since.Add(patience * w.files.cfg.Settle)
	settle.Reset(min(w.files.cfg.Settle, max(0, end.Sub(now))))
}

// refresh reads the files and publishes them when they differ from what was published last.
func (w *watch) refresh(settle *time.Timer) {
	w.since = time.Time{}
	snap, err := w.files.snapshot(w.notifier)
	if errors.Is(err, errUnsettled) {
		w.changed(settle)
		return
	}
	unread := w.files.published.refresh()
	if err == nil && len(snap.sources) == 0 {
		err = w.files.published.lack(unread)
	}
	w.failing = err != nil || unread != nil
	sum := snap.digest(err, &w.files.published)
	if w.known && sum == w.last && !w.force {
		return
	}
	w.last, w.known, w.force = sum, true, false
	if err != nil {
		w.publish(Load{Err: err})
		return
	}
	load := w.files.compileAll(snap.sources)
	if broken := w.notifier.broken; broken != nil {
		load.Problems = append(load.Problems, descriptors.Problem{
			Pos: descriptors.Pos{File: w.files.root()}, Warning: true,
			Text: fmt.Sprintf("not all changes can be watched, so files are read every %v: %v", w.files.cfg.Retry,
				broken),
		})
	}
	w.publish(load)
}
