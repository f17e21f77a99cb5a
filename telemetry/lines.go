package telemetry

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lineWithin = 50 * time.Millisecond // for a line to be written, before nothing waits for lines any more
	maxLines   = 1024                  // that wait to be written
)

// Lines is where a log goes. Lines that no reader takes from a pipe wait, and nothing waits for them. It counts the
// lines that could not be written, such as those on a full disk, and those beyond its bound. It is
// safe for concurrent use.
type Lines struct {
	Out  io.Writer
	lost atomic.Int64

	mu      sync.Mutex // guards all below
	waiting []*line
	writing bool // a goroutine writes what waits
	stuck   bool // a line took too long, and is not written yet
}

// line is one that waits.
type line struct {
	text    []byte
	written chan struct{} // closed after that
	err     error         // to be read after that
}

// Write writes a line, and waits for that for a moment.
func (l *Lines) Write(text []byte) (int, error) {
	one, wait := l.put(text)
	if one == nil || !wait {
		return len(text), nil
	}
	timer := time.NewTimer(lineWithin)
	defer timer.Stop()
	select {
	case <-one.written:
		return len(text), one.err
	case <-timer.C:
	}
	l.mu.Lock()
	l.stuck = l.writing
	l.mu.Unlock()
	return len(text), nil
}

// put lets a line wait, unless too many do, and reports whether its writer should wait, too.
func (l *Lines) put(text []byte) (one *line, wait bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= maxLines {
		l.lost.Add(1)
		return nil, false
	}
	one = &line{text: bytes.Clone(text), written: make(chan struct{})}
	l.waiting = append(l.waiting, one)
	if !l.writing {
		l.writing = true
		go l.write()
	}
	return one, !l.stuck
}

// write writes what waits, until nothing does.
func (l *Lines) write() {
	for {
		l.mu.Lock()
		if len(l.waiting) == 0 {
			l.waiting, l.writing, l.stuck = nil, false, false
			l.mu.Unlock()
			return
		}
		one := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.mu.Unlock()
		_, one.err = l.Out.Write(one.text)
		if one.err != nil {
			l.lost.Add(1)
		}
		close(one.written)
	}
}

// Lines measures a log.
func (t *Telemetry) Lines(l *Lines) {
	const help = "Lines of the log that could not be written: the disk is full, or the reader has stopped."
	t.counts("spillway_log_lines_lost_total", help, &l.lost)
}
