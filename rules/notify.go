package rules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// places are the folders to watch: which names in them matter, or nil when all do.
type places map[string]map[string]bool

// inside watches everything in a folder.
func (p places) inside(folder string) { p[folder] = nil }

// name watches one name in a folder.
func (p places) name(folder, name string) {
	names, watched := p[folder]
	if watched && names == nil {
		return
	}
	if names == nil {
		names = map[string]bool{}
		p[folder] = names
	}
	names[name] = true
}

// reach watches every name that decides where the path leads: each link on the way, and the end of it. Where the way
// ends early, it watches for the name that is missing.
func (p places) reach(path string) {
	const maxLinks = 40
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	at, rest := string(filepath.Separator), split(path)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		if err != nil {
			p.name(at, name)
			return
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		p.name(at, name)
		target, err := os.Readlink(next)
		links++
		if err != nil || links > maxLinks {
			return
		}
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = append(split(target), rest...)
	}
	p.name(filepath.Dir(at), filepath.Base(at))
}

// split cuts a path into its names.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// notifier receives the changes in folders. Without a watcher it receives nothing.
type notifier struct {
	watcher *fsnotify.Watcher
	events  chan fsnotify.Event
	errors  chan error
	watched map[string]os.FileInfo // folders that the watcher watches, as they were then
	places  places
	broken  error // why not all can be watched
}

// newNotifier returns a notifier that watches nothing yet.
func newNotifier() *notifier {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return &notifier{broken: fmt.Errorf("starting to watch files: %w", err)}
	}
	return &notifier{watcher: watcher, events: watcher.Events, errors: watcher.Errors,
		watched: map[string]os.FileInfo{}}
}

func (n *notifier) close() {
	if n.watcher != nil {
		n.watcher.Close() //nolint:errcheck // nothing is lost: it only ever read
	}
}

// follow watches exactly these places. A folder that was replaced by another of the same name is watched anew.
func (n *notifier) follow(p places) {
	if n == nil || n.watcher == nil {
		return
	}
	n.places, n.broken = p, nil
	for folder, before := range n.watched {
		now, err := os.Stat(folder)
		_, wanted := p[folder]
		if err != nil || !wanted || !os.SameFile(before, now) {
			n.watcher.Remove(folder) //nolint:errcheck // it may be gone, and with it the watch
			delete(n.watched, folder)
		}
	}
	for folder := range p {
		if _, already := n.watched[folder]; already {
			continue
		}
		n.watch(folder)
	}
}

// watch adds one folder. One that is gone again or not readable is left to the poll; where the system has no more
// watches to give, the user has to know.
func (n *notifier) watch(folder string) {
	info, err := os.Stat(folder)
	if err == nil {
		err = n.watcher.Add(folder)
	}
	switch {
	case err == nil:
		n.watched[folder] = info
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
	default:
		n.broken = fmt.Errorf("watching %s: %w", folder, err)
	}
}

// concerns reports whether an event may have changed which files there are, or what they hold.
func (n *notifier) concerns(event fsnotify.Event) bool {
	if _, folder := n.places[event.Name]; folder { // a watched folder itself was moved or removed
		if event.Has(fsnotify.Remove | fsnotify.Rename) {
			// its watch is gone, and the next folder of that name may look like the same one: it may get its inode
			delete(n.watched, event.Name)
		}
		return true
	}
	names, watched := n.places[filepath.Dir(event.Name)]
	return watched && (names == nil || names[filepath.Base(event.Name)])
}
