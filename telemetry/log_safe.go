package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a line, in bytes.
const (
	maxLine    = 4096 // with its end
	lineFrame  = 200  // of it, for time, level and the names of both
	maxMessage = 1024
	maxValue   = 256
	maxKey     = 64
)

// wider are the values that may be longer than others. They are this program's own words, for the greatest part.
var wider = map[string]int{"error": 1024, "stack": 2048}

// safe keeps lines short and free of secrets, and of what a terminal would act upon. That a line stays one line is the
// work of the handler behind it, which escapes control bytes.
type safe struct {
	slog.Handler
	hide *Secrets // nil: nothing to hide
	room int      // bytes left for message and attributes
}

// Handle passes a record on in its safe form.
func (s *safe) Handle(ctx context.Context, r slog.Record) error {
	room := s.room
	clean := slog.NewRecord(r.Time, r.Level, s.text(r.Message, maxMessage, &room), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a, ok := s.attr(a, &room)
		if ok {
			clean.AddAttrs(a)
		}
		return ok
	})
	return s.Handler.Handle(ctx, clean)
}

// WithAttrs makes the attributes safe, once for all lines.
func (s *safe) WithAttrs(attrs []slog.Attr) slog.Handler {
	room := s.room
	var clean []slog.Attr
	for _, a := range attrs {
		if a, ok := s.attr(a, &room); ok {
			clean = append(clean, a)
		}
	}
	return &safe{Handler: s.Handler.WithAttrs(clean), hide: s.hide, room: room}
}

// WithGroup makes the group's attributes safe, too.
func (s *safe) WithGroup(name string) slog.Handler {
	const perAttr = 16 // text writes the group's name before each of its attributes
	return &safe{Handler: s.Handler.WithGroup(name), hide: s.hide, room: s.room - perAttr*(len(name)+1)}
}

// attr makes an attribute safe, and reports whether there is room for it.
func (s *safe) attr(a slog.Attr, room *int) (slog.Attr, bool) {
	const frame, number = 8, 40 // quotes and separators; the longest value beside texts
	a.Key = s.text(a.Key, maxKey, room)
	*room -= frame
	if *room <= 0 {
		return a, false
	}
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		v = s.group(v, room)
	case slog.KindString, slog.KindAny:
		v = slog.StringValue(s.text(spoken(v), max(maxValue, wider[a.Key]), room))
	default:
		*room -= number
	}
	return slog.Attr{Key: a.Key, Value: v}, *room >= 0
}

func (s *safe) group(v slog.Value, room *int) slog.Value {
	var clean []slog.Attr
	for _, a := range v.Group() {
		if a, ok := s.attr(a, room); ok {
			clean = append(clean, a)
		}
	}
	return slog.GroupValue(clean...)
}

// spoken is a value as text. Of a value whose methods panic, package fmt writes the panic.
func spoken(v slog.Value) string {
	if v.Kind() == slog.KindString {
		return v.String()
	}
	return fmt.Sprintf("%+v", v.Any())
}

// text hides secrets in a text and cuts it to most bytes, and to what room is left for its written form.
func (s *safe) text(text string, most int, room *int) string {
	if s.hide != nil {
		text = s.hide.conceal(text)
	}
	const more = "…"
	var b strings.Builder
	cost, at := len(more), 0 // of what is written; bytes read
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r >= 0x7f && !unicode.IsPrint(r) {
			r = utf8.RuneError // a terminal may act upon it, and a reader split the line at it
		}
		if b.Len()+utf8.RuneLen(r) > most-len(more) || cost+written(r) > *room {
			b.WriteString(more)
			break
		}
		b.WriteRune(r)
		cost += written(r)
		at += size
	}
	*room -= cost
	return b.String()
}

// written is how many bytes a rune takes in a line at most.
func written(r rune) int {
	switch {
	case r < ' ':
		return len(`\u0000`)
	case r == '"', r == '\\':
		return 2
	}
	return utf8.RuneLen(r)
}
