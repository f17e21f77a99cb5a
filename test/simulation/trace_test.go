package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is what happened, in order. It keeps the lines of a replay; else only the violations.
type trace struct {
	world *world
	on    bool

	mu    sync.Mutex // guards all below
	lines []line
}

type line struct {
	at   time.Duration
	text string
}

// add adds a line, if there is to be a trace.
func (t *trace) add(format string, args ...any) {
	if !t.on {
		return
	}
	l := line{t.world.since(), fmt.Sprintf(format, args...)}
	t.mu.Lock()
	t.lines = append(t.lines, l)
	t.mu.Unlock()
}

func (t *trace) call(c *call) {
	if t.on {
		t.add("%v", c)
	}
}

// String is the whole trace.
func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.lines, func(a, b line) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&b, "%12.6f  %s\n", l.at.Seconds(), l.text)
	}
	return b.String()
}

// violationsShown is how many violations of one seed are written.
const violationsShown = 5

// violation notes that a promise is broken. c, unless nil, is the call that shows it.
func (w *world) violation(c *call, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if c != nil {
		text += "\n    " + c.String()
	}
	if !w.over {
		w.trace.add("VIOLATION: %s", text)
	}
	w.mu.Lock()
	w.violations = append(w.violations, text)
	w.mu.Unlock()
}

// report fails the test if a promise was broken, with the first of the violations.
func (w *world) report() {
	if w.trace.on {
		fmt.Print(w.s, w.trace)
	}
	if len(w.violations) == 0 {
		return
	}
	for _, text := range w.violations[:min(len(w.violations), violationsShown)] {
		w.Errorf("seed %d: %s", w.s.seed, text)
	}
	w.Errorf("seed %d: %d violations", w.s.seed, len(w.violations))
}
