package main

import (
	"fmt"
	"os"
	"time"
)

// progress writes what is being measured and how long the rest takes: one line that is overwritten on a terminal, else
// a line each.
type progress struct {
	out      *os.File
	terminal bool
	left     int           // rounds
	each     time.Duration // a round, by the plan at first and then as seen
	begin    time.Time
	done     int
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// expect sets the number of rounds and the length of one.
func (p *progress) expect(rounds int, each time.Duration) {
	p.left, p.each, p.begin = rounds, each+500*time.Millisecond, time.Now()
}

// expectMore adds rounds to the expected ones.
func (p *progress) expectMore(rounds int) { p.left += rounds }

// step begins a round.
func (p *progress) step(what string) {
	if p.done > 2 {
		p.each = time.Since(p.begin) / time.Duration(p.done)
	}
	line := fmt.Sprintf("%s, %.0f s left", what, (time.Duration(p.left) * p.each).Seconds())
	p.left--
	p.done++
	p.show(line)
}

// show replaces the last line.
func (p *progress) show(line string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// clear removes the line from a terminal.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
