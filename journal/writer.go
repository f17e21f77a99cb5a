package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"sync/atomic"
	"time"
)

// Bounds of the writing.
const (
	entryBytes = 48 << 10              // of rows, at which an entry is written; it may be longer by one row
	firstPause = 50 * time.Millisecond // after an entry could not be written
	longPause  = time.Second
)

// The lists of an entry, by their names in Rows.
const (
	identities = iota
	tenants
	calls
	endpoints
	keys
	caches
	singleEvents
	lists
)

var listNames = [lists]string{`"identities":`, `"tenants":`, `"calls":`, `"endpoints":`, `"keys":`, `"caches":`, `"events":`}

// writer appends the entries of one stream, one after the other.
type writer struct {
	cfg     *Config
	name    string
	collect func(*writer) bool // adds what was collected; it returns false where an entry was given up
	left    func() int64       // how many rows were collected since
	stop    <-chan struct{}    // closed when the journal begins to stop: a pause ends then
	last    context.Context    // ended when nothing is tried any more
	names   names

	text  [lists]bytes.Buffer // rows of the next entry
	json  [lists]*json.Encoder
	entry bytes.Buffer

	sequence int64
	over     bool  // an entry was given up, so nothing is written any more
	dropped  int64 // rows that were dropped and are in no entry yet
	taken    int64 // rows that were collected
	pending  int64 // of these, rows that the next entry has

	rows, entries atomic.Int64 // that were written
	failed        atomic.Int64 // attempts to append an entry
}

func newWriter(
	cfg *Config, name string, collect func(*writer) bool, left func() int64, stop <-chan struct{}, last context.Context,
) *writer {
	w := &writer{cfg: cfg, name: name, collect: collect, left: left, stop: stop, last: last,
		names: names{name: cfg.Name}}
	for i := range w.json {
		w.json[i] = json.NewEncoder(&w.text[i])
		w.json[i].SetEscapeHTML(false)
	}
	return w
}

// flush writes what was collected. It returns false where an entry was given up.
func (w *writer) flush() bool { return !w.over && w.collect(w) && w.ship(0) }

// add adds a row to a list of the next entry.
func (w *writer) add(list int, row any) {
	b := &w.text[list]
	if b.Len() == 0 {
		b.WriteString(listNames[list])
		b.WriteByte('[')
	} else {
		b.WriteByte(',')
	}
	err := w.json[list].Encode(row)
	if err != nil {
		panic(err) // no value of these types is refused
	}
	b.Truncate(b.Len() - 1) // the end of the line
}

// ship appends an entry if there are rows of more than that many bytes, or some that were dropped and above is 0. It
// returns false if the entry was given up.
func (w *writer) ship(above int) bool {
	size := 0
	for i := range w.text {
		size += w.text[i].Len()
	}
	if size <= above && (above > 0 || w.dropped == 0) {
		return true
	}
	w.entry.Reset()
	w.entry.WriteByte('{')
	for i := range w.text {
		b := &w.text[i]
		if b.Len() == 0 {
			continue
		}
		if w.entry.Len() > 1 {
			w.entry.WriteByte(',')
		}
		w.entry.Write(b.Bytes())
		w.entry.WriteByte(']')
		b.Reset()
	}
	w.entry.WriteByte('}')
	return w.append(w.entry.Bytes(), false)
}

// append writes an entry, and tries again until it is written: with the same sequence, because only the reply may be
// missing. It returns false where the journal stops and the entry cannot be written: nothing is written after that.
func (w *writer) append(rows []byte, ended bool) bool {
	w.sequence++
	e := Entry{
		Sidecar: w.cfg.Sidecar, Sequence: w.sequence, Region: w.cfg.Region, Dropped: w.dropped, Ended: ended,
		Rows: rows,
	}
	pause, stop := firstPause, w.stop
	for {
		err := w.cfg.Append(w.name, &e)
		if err == nil {
			w.rows.Add(w.pending)
			w.entries.Add(1)
			w.dropped, w.pending = 0, 0
			return true
		}
		w.failed.Add(1)
		w.cfg.OnError(w.name, err)
		timer := time.NewTimer(pause)
		pause = min(2*pause, longPause)
		select {
		case <-timer.C:
		case <-stop:
			pause, stop = firstPause, nil
		case <-w.last.Done():
			timer.Stop()
			w.over = true
			return false
		}
		timer.Stop()
	}
}

// end writes what is left, and that nothing comes after. It returns how many rows could not be written.
func (w *writer) end() int64 {
	if w.flush() && w.sequence > 0 {
		w.append([]byte("{}"), true)
	}
	return w.taken + w.left() - w.rows.Load()
}
