package records

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// usualText is more bytes than most texts take.
const usualText = 160

// textOf is a record as Redis keeps it, empty for none. It is what encoding/json writes: a walk through all records
// spends most of its time here, so all but rare records are written without reflection, and the texts of one writer
// share their memory.
func (w *writer) textOf(r *Record) ([]byte, error) {
	if r == nil {
		return nil, nil
	}
	from := len(w.bytes)
	w.rare = false
	w.record(r)
	if !w.rare {
		return w.bytes[from:len(w.bytes):len(w.bytes)], nil
	}
	w.bytes = w.bytes[:from]
	text, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write a record: %w", err)
	}
	return text, nil
}

// writer writes JSON. Fields that are empty are left out.
type writer struct {
	bytes []byte
	rare  bool // there is something that only encoding/json can write
}

func (w *writer) record(r *Record) {
	w.bytes = append(w.bytes, '{')
	if r.Block != nil {
		w.block(r.Block)
	}
	w.text("tier", r.Tier)
	if len(r.Limits) > 0 {
		w.name("limits")
		w.bytes = append(w.bytes, '[')
		for i := range r.Limits {
			if i > 0 {
				w.bytes = append(w.bytes, ',')
			}
			w.limit(&r.Limits[i])
		}
		w.bytes = append(w.bytes, ']')
	}
	w.text("note", r.Note)
	w.text("by", r.By)
	w.time("at", r.At)
	if r.Key != nil {
		w.key(r.Key)
	}
	w.yes("control", r.Control)
	w.bytes = append(w.bytes, '}')
}

func (w *writer) block(b *Block) {
	w.name("block")
	w.bytes = append(w.bytes, '{')
	w.yes("lifted", b.Lifted)
	w.text("reason", b.Reason)
	w.time("until", b.Until)
	w.bytes = append(w.bytes, '}')
}

func (w *writer) limit(l *Limit) {
	w.bytes = append(w.bytes, '{')
	w.text("name", l.Name)
	w.yes("unlimited", l.Unlimited)
	w.number("count", l.Count)
	w.number("per", int64(l.Per))
	w.number("burst", l.Burst)
	w.text("algorithm", l.Algorithm)
	w.yes("month", l.Month)
	w.bytes = append(w.bytes, '}')
}

func (w *writer) key(k *Key) {
	w.name("key")
	w.bytes = append(w.bytes, '{')
	w.name("id")
	w.quoted(k.ID)
	w.name("user")
	w.quoted(k.User)
	w.text("tier", k.Tier)
	w.time("expires", k.Expires)
	w.yes("revoked", k.Revoked)
	w.bytes = append(w.bytes, '}')
}

// name begins a field.
func (w *writer) name(name string) {
	if w.bytes[len(w.bytes)-1] != '{' {
		w.bytes = append(w.bytes, ',')
	}
	w.bytes = append(w.bytes, '"')
	w.bytes = append(w.bytes, name...)
	w.bytes = append(w.bytes, '"', ':')
}

func (w *writer) text(name, value string) {
	if value != "" {
		w.name(name)
		w.quoted(value)
	}
}

// quoted writes a text in which nothing has to be escaped.
func (w *writer) quoted(text string) {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			w.rare = true
		}
	}
	w.bytes = append(w.bytes, '"')
	w.bytes = append(w.bytes, text...)
	w.bytes = append(w.bytes, '"')
}

func (w *writer) number(name string, n int64) {
	if n != 0 {
		w.name(name)
		w.bytes = strconv.AppendInt(w.bytes, n, 10)
	}
}

func (w *writer) yes(name string, is bool) {
	if is {
		w.name(name)
		w.bytes = append(w.bytes, "true"...)
	}
}

func (w *writer) time(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	if t.Location() != time.UTC || t.Year() < 0 || t.Year() > 9999 {
		w.rare = true
	}
	w.name(name)
	w.bytes = append(w.bytes, '"')
	w.bytes = t.AppendFormat(w.bytes, time.RFC3339Nano)
	w.bytes = append(w.bytes, '"')
}
