package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

func TestProgressLine(t *testing.T) {
	for _, c := range []struct {
		p    replay.Progress
		took time.Duration
		want string
	}{
		{replay.Progress{Lines: 3000, Bytes: 250, Size: 1000}, 3 * time.Second,
			"[=======                       ]  25 %, 3000 lines, 1000 lines/s, 9s left"},
		{replay.Progress{Lines: 3000, Bytes: 1000, Size: 1000}, 3 * time.Second,
			"[==============================] 100 %, 3000 lines, 1000 lines/s, 0s left"},
		{replay.Progress{Lines: 3000, Bytes: 250}, 2 * time.Second, "3000 lines, 1500 lines/s"},
		{replay.Progress{Size: 1000}, 0, "[                              ]   0 %, 0 lines, 0 lines/s"},
	} {
		if got := line(c.p, c.took); got != c.want {
			t.Errorf("%+v after %v:\n%q, want\n%q", c.p, c.took, got, c.want)
		}
	}
}

// TestBarWritesOverItself: it is written at most ten times a second, covers what it wrote before, and is gone at the
// end.
func TestBarWritesOverItself(t *testing.T) {
	var out strings.Builder
	now := time.Unix(0, 0)
	b := &bar{out: &out, now: func() time.Time { return now }, began: now}
	for range 10 {
		now = now.Add(barEvery / 2)
		b.show(replay.Progress{Lines: 1000, Bytes: 1})
	}
	if shown := strings.Count(out.String(), "\r"); shown != 5 {
		t.Errorf("shown %d times, want 5", shown)
	}
	b.end()
	if parts := strings.Split(out.String(), "\r"); strings.TrimSpace(parts[len(parts)-2]) != "" ||
		len(parts[len(parts)-2]) != b.widest() || parts[len(parts)-1] != "" {
		t.Errorf("the last line is not covered: %q", parts)
	}
}

// widest is the width of the line that the end covers.
func (b *bar) widest() int { return len(line(replay.Progress{Lines: 1000}, 500*time.Millisecond)) }

// TestBarIsForTerminals: no bar is written to a file, nor to what is not a file.
func TestBarIsForTerminals(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for when, want := range map[string]bool{"auto": false, "never": false, "always": true} {
		b, err := newBar(when, file)
		if err != nil || (b.out != nil) != want {
			t.Errorf("%s: shown %v: %v", when, b.out != nil, err)
		}
	}
	terminal := openTerminal(t)
	b, err := newBar("auto", terminal)
	if err != nil || b.out == nil {
		t.Errorf("on a terminal: shown %v: %v", b.out != nil, err)
	}
}

// openTerminal opens a pseudo terminal.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return terminal
}
