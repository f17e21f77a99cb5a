package telemetry

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/engine"
)

// Bounds of the log of decisions.
const (
	decisionsPerSecond = 100 // lines; further ones are skipped and counted
	decisionsWaiting   = 256 // to be written; a log that is not read must not hold up decisions
)

// DecisionLogConfig is which decisions are logged.
type DecisionLogConfig struct {
	All  bool    // also those that admit; else those that refuse, or would have in shadow mode
	Rate float64 // share of them, 0..1
	Log  *slog.Logger
	Now  func() time.Time // nil: time.Now
}

// DecisionLog writes one line about some decisions, at level info, and blocks none of them. Make one with
// Telemetry.DecisionLog, and close it.
type DecisionLog struct {
	cfg     DecisionLogConfig
	waiting chan Summary
	skipped atomic.Int64  // since the last line
	counter *atomic.Int64 // of all skipped
	stop    chan struct{}
	done    sync.WaitGroup

	mu     sync.Mutex // guards second and lines
	second int64      // unix time
	lines  int        // in it
}

// DecisionLog starts a log of decisions.
func (t *Telemetry) DecisionLog(cfg DecisionLogConfig) *DecisionLog {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &DecisionLog{cfg: cfg, waiting: make(chan Summary, decisionsWaiting), counter: &t.totals.Unlogged,
		stop: make(chan struct{})}
	l.done.Go(l.run)
	return l
}

// Wants reports whether a decision is to be logged.
func (l *DecisionLog) Wants(o engine.Outcome) bool {
	if !l.cfg.All && !o.Refuses() {
		return false
	}
	if !l.cfg.Log.Enabled(context.Background(), slog.LevelInfo) {
		return false
	}
	return l.cfg.Rate >= 1 || rand.Float64() < l.cfg.Rate
}

// Write logs a decision, soon. It never waits: what is too much is skipped, and the next line has the number.
func (l *DecisionLog) Write(s Summary) {
	if l.room() {
		select {
		case l.waiting <- s:
			return
		default:
		}
	}
	l.skipped.Add(1)
	l.counter.Add(1)
}

// room reports whether this second has a line left.
func (l *DecisionLog) room() bool {
	now := l.cfg.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now != l.second {
		l.second, l.lines = now, 0
	}
	l.lines++
	return l.lines <= decisionsPerSecond
}

// Close writes what waits and ends the log.
func (l *DecisionLog) Close() error {
	close(l.stop)
	l.done.Wait()
	return nil
}

func (l *DecisionLog) run() {
	for {
		select {
		case s := <-l.waiting:
			l.line(&s)
		case <-l.stop:
			l.rest()
			return
		}
	}
}

// rest writes what waits.
func (l *DecisionLog) rest() {
	for {
		select {
		case s := <-l.waiting:
			l.line(&s)
		default:
			return
		}
	}
}

// line writes one decision.
func (l *DecisionLog) line(s *Summary) {
	attrs := []slog.Attr{
		slog.String("door", s.Door), slog.String("domain", s.Domain), slog.String("rule", s.Rule),
		slog.String("scope", s.Scope),
		slog.String("outcome", s.Outcome.String()), slog.Int("status", s.Status),
		slog.Int64("took_us", s.Took.Microseconds()),
	}
	if s.Degraded != "" {
		attrs = append(attrs, slog.String("degraded", s.Degraded))
	}
	if s.Trace != "" {
		attrs = append(attrs, slog.String("trace_id", s.Trace))
	}
	if s.ID != "" {
		attrs = append(attrs, slog.String("id", s.ID))
	}
	if n := l.skipped.Swap(0); n > 0 {
		attrs = append(attrs, slog.Int64("skipped", n))
	}
	l.cfg.Log.LogAttrs(context.Background(), slog.LevelInfo, "decision", attrs...)
}
