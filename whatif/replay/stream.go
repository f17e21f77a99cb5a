package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

const (
	maxLine  = 1 << 20  // bytes of a line
	maxAhead = 16 << 20 // bytes of the lines that were read and not handed out yet, of one log
)

// stream is one log. Envoy writes a line when a request ends, with the time at which the request began, so lines
// are out of order by as much as requests last: the earliest of the next lines comes first.
type stream struct {
	name    string
	closers []io.Closer
	lines   *bufio.Reader
	long    []byte // a line that is longer than the buffer
	line    int64
	ahead   records // lines that were read and not handed out yet
	reorder int     // how many
	held    int     // their bytes
	spare   []*record
	err     error // that ended the log
}

// progress counts what all logs had so far. It is read by another goroutine.
type progress struct {
	bytes, lines atomic.Int64
	size         int64 // of all logs; 0: not known
}

// open opens a log, which may be compressed. A hyphen is the standard input.
func open(name string, in io.Reader, reorder int, p *progress) (*stream, error) {
	s := &stream{name: name, reorder: reorder}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a folder: name the log files", name)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		s.closers = append(s.closers, file)
		p.size += info.Size()
		in = file
	}
	raw := bufio.NewReaderSize(counting{in, &p.bytes}, 256<<10)
	s.lines = raw
	if magic, _ := raw.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		packed, err := gzip.NewReader(raw)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", name, err), s.close())
		}
		s.lines = bufio.NewReaderSize(packed, 256<<10)
	}
	return s, nil
}

func (s *stream) close() error {
	var all []error
	for _, c := range s.closers {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

// counting counts the bytes that are read.
type counting struct {
	from  io.Reader
	bytes *atomic.Int64
}

// Read reads and counts.
func (c counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

var errLong = fmt.Errorf("the line is longer than %d bytes", maxLine)

// next returns the next line without its end. The error is io.EOF at the end of the log, and errLong for a line that
// was skipped.
func (s *stream) next() ([]byte, error) {
	line, err := s.lines.ReadSlice('\n')
	if err == nil {
		return line[:len(line)-1], nil
	}
	s.long = append(s.long[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = s.lines.ReadSlice('\n')
		if len(s.long) <= maxLine {
			s.long = append(s.long, line...)
		}
	}
	switch {
	case len(s.long) > maxLine && (err == nil || errors.Is(err, io.EOF)):
		return s.long[:maxLine], errLong
	case err == nil:
		return s.long[:len(s.long)-1], nil
	case errors.Is(err, io.EOF) && len(s.long) > 0:
		return s.long, nil // the last line has no end
	}
	return nil, err
}

// fill reads lines until there are enough of them to know which comes first, or no more. What cannot be read goes to
// bad.
func (s *stream) fill(l *layout, p *progress, bad func(s *stream, line []byte, err error)) {
	for s.err == nil && len(s.ahead) <= s.reorder && s.held <= maxAhead {
		line, err := s.next()
		if err != nil && !errors.Is(err, errLong) {
			s.err = err
			return
		}
		s.line++
		p.lines.Add(1)
		trimmed := bytes.TrimSpace(line)
		if err == nil && len(trimmed) == 0 {
			continue
		}
		r := s.blank()
		if err == nil {
			err = r.read(l, string(trimmed))
		}
		if err != nil {
			s.spare = append(s.spare, r)
			bad(s, line, err)
			continue
		}
		r.order, r.size = s.line, len(trimmed)
		s.held += r.size
		heap.Push(&s.ahead, r)
	}
}

func (s *stream) blank() *record {
	if n := len(s.spare); n > 0 {
		r := s.spare[n-1]
		s.spare = s.spare[:n-1]
		return r
	}
	return new(record)
}

// pop hands out the earliest record, which give takes back.
func (s *stream) pop() *record {
	r := heap.Pop(&s.ahead).(*record)
	s.held -= r.size
	return r
}

func (s *stream) give(r *record) { s.spare = append(s.spare, r) }

// records are in the order of a heap, the earliest first.
type records []*record

func (h records) Len() int { return len(h) }
func (h records) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}
func (h records) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds a record.
func (h *records) Push(r any) { *h = append(*h, r.(*record)) }

// Pop takes the last record off.
func (h *records) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
