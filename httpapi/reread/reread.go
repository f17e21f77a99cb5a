// Package reread keeps what files hold, and reads them again when they change.
package reread

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Every bounds how often the files are looked at.
const Every = time.Second

// Files is what some files hold. A change that cannot be read is reported, and what was read last stays in use. Make
// one with New. It is safe for concurrent use.
type Files[T any] struct {
	paths  []string
	read   func() (T, error)
	report func(error)

	mu     sync.Mutex // guards the rest
	stamp  string     // of the files that are in use
	failed string     // of those that could not be read last; empty where they could
	value  T
	looked time.Time
}

// New reads the files, or fails. An empty path names no file. Report gets each change: nil where it was read, else why
// not.
func New[T any](paths []string, read func() (T, error), report func(error)) (*Files[T], error) {
	f := &Files[T]{paths: paths, read: read, report: report}
	f.stamp = f.stampNow()
	var err error
	f.value, err = read()
	if err != nil {
		return nil, err
	}
	f.looked = time.Now()
	return f, nil
}

// Current is what the files hold. It looks at them where that is a second ago.
func (f *Files[T]) Current() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= Every {
		f.lookLocked()
	}
	return f.value
}

// Look looks at the files now.
func (f *Files[T]) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookLocked()
}

func (f *Files[T]) lookLocked() {
	f.looked = time.Now()
	stamp := f.stampNow()
	if stamp == f.stamp {
		return
	}
	fresh, err := f.read()
	if err != nil {
		if stamp != f.failed {
			f.report(err)
		}
		// They are tried again: what made them unreadable, such as their mode, may end without a change of the stamp.
		f.failed = stamp
		return
	}
	f.stamp, f.failed, f.value = stamp, "", fresh
	f.report(nil)
}

// stampNow differs for each state of the files.
func (f *Files[T]) stampNow() string {
	var b strings.Builder
	for _, path := range f.paths {
		info, err := os.Stat(path)
		if err != nil {
			b.WriteString("-;")
			continue
		}
		fmt.Fprintf(&b, "%d/%d;", info.ModTime().UnixNano(), info.Size())
	}
	return b.String()
}
