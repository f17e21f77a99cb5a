package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/spillway-mesh/spillway/whatif/replay"
)

// bar shows how far a replay or a load has come, in one line that it writes over again. The zero value shows nothing.
type bar struct {
	out   io.Writer
	now   func() time.Time
	began time.Time
	shown time.Time
	width int // of the last line
}

const (
	barEvery = 100 * time.Millisecond
	barWidth = 30
)

// newBar makes a bar that is shown always, never, or with auto on a terminal.
func newBar(when string, out io.Writer) (*bar, error) {
	switch when {
	case "always":
	case "never":
		return &bar{}, nil
	case "auto":
		if !isTerminal(out) {
			return &bar{}, nil
		}
	default:
		return nil, fmt.Errorf("--progress is auto, always or never, not %q", when)
	}
	return &bar{out: out, now: time.Now, began: time.Now()}, nil
}

// addProgress adds the flag of the bar.
func addProgress(cmd *cobra.Command) {
	modes := []string{"auto", "always", "never"}
	cmd.Flags().String("progress", "auto", "show progress on the standard error: auto (on a terminal), always or never")
	must(cmd.RegisterFlagCompletionFunc("progress", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp)))
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	file, is := stream.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// show writes the line, unless it was written just now.
func (b *bar) show(p replay.Progress) {
	if b.out == nil {
		return
	}
	now := b.now()
	if now.Sub(b.shown) < barEvery {
		return
	}
	b.shown = now
	b.write(line(p, now.Sub(b.began)))
}

// showText shows a text in place of the bar.
func (b *bar) showText(text string) {
	if b.out != nil {
		b.write(text)
	}
}

// write puts the text in place of the last one.
func (b *bar) write(text string) {
	fmt.Fprintf(b.out, "\r%s%s", text, strings.Repeat(" ", max(b.width-len(text), 0)))
	b.width = len(text)
}

// end removes the line.
func (b *bar) end() {
	if b.width > 0 {
		b.write("")
		fmt.Fprint(b.out, "\r")
	}
}

// line is the bar with the rate and, where the size of the logs is known, the share that is done and the time left.
func line(p replay.Progress, took time.Duration) string {
	rate := 0.0
	if took > 0 {
		rate = float64(p.Lines) / took.Seconds()
	}
	text := fmt.Sprintf("%d lines, %.0f lines/s", p.Lines, rate)
	if p.Size == 0 {
		return text
	}
	done := min(float64(p.Bytes)/float64(p.Size), 1)
	filled := int(done * barWidth)
	text = fmt.Sprintf("[%s%s] %3.0f %%, %s", strings.Repeat("=", filled), strings.Repeat(" ", barWidth-filled),
		100*done, text)
	if done > 0 {
		left := time.Duration(float64(took) * (1 - done) / done)
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}
