package telemetry

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// LogConfig is what a log looks like.
type LogConfig struct {
	Out   io.Writer    // required
	Level slog.Leveler // nil: info
	JSON  bool         // one object per line with @timestamp and @message, else key=value text
	Every bool         // also what repeats
	Now   func() time.Time

	Secrets *Secrets // what never appears; nil: nothing
}

// NewLogger returns a log of one line per event: a line has 4 KiB at most, and values are
// cut. Unless it is to show every line, a warning or error that repeats within ten seconds appears once, with a count
// of what was left out the next time it appears.
func NewLogger(cfg LogConfig) *slog.Logger {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	opt := &slog.HandlerOptions{Level: cfg.Level}
	var h slog.Handler = slog.NewTextHandler(cfg.Out, opt)
	if cfg.JSON {
		opt.ReplaceAttr = jsonKeys
		h = slog.NewJSONHandler(cfg.Out, opt)
	}
	h = &safe{Handler: h, hide: cfg.Secrets, room: maxLine - lineFrame}
	if cfg.Every {
		return slog.New(h)
	}
	return slog.New(&thinned{Handler: h, seen: &seen{now: cfg.Now, at: map[string]*repeat{}}})
}

// jsonKeys gives the keys of a line the names that the reference server gives them.
func jsonKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		a.Key = "@timestamp"
	case slog.MessageKey:
		a.Key = "@message"
	case slog.LevelKey:
		a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
	}
	return a
}

const (
	quiet     = 10 * time.Second // how long a repeated message stays away
	maxQuiets = 1000             // messages remembered; beyond it all are forgotten, which only lets some through
)

// thinned keeps repeated warnings and errors out of a log.
type thinned struct {
	slog.Handler
	seen *seen
}

// seen is when each message was last let through.
type seen struct {
	now func() time.Time
	mu  sync.Mutex // guards at
	at  map[string]*repeat
}

type repeat struct {
	until time.Time
	left  int // how many were kept out since
}

// Handle passes the record on unless the same message went through a moment ago.
func (t *thinned) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return t.Handler.Handle(ctx, r)
	}
	left, ok := t.seen.pass(r.Level.String() + r.Message)
	if !ok {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", left))
	}
	return t.Handler.Handle(ctx, r)
}

// WithAttrs keeps the memory of what was seen.
func (t *thinned) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &thinned{Handler: t.Handler.WithAttrs(attrs), seen: t.seen}
}

// WithGroup keeps the memory of what was seen.
func (t *thinned) WithGroup(name string) slog.Handler {
	return &thinned{Handler: t.Handler.WithGroup(name), seen: t.seen}
}

// pass reports whether a message may go through, and how many of its kind were kept out before it.
func (s *seen) pass(message string) (left int, ok bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.at[message]; r != nil {
		if now.Before(r.until) {
			r.left++
			return 0, false
		}
		left = r.left
	}
	if len(s.at) >= maxQuiets {
		clear(s.at)
	}
	s.at[message] = &repeat{until: now.Add(quiet)}
	return left, true
}
