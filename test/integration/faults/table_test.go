package faults

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// row is one fault of the matrix.
type row struct {
	id    string
	fault string        // what happens, for people
	short time.Duration // how long in make test; 0: not there
	full  time.Duration // how long in make test-faults
	run   func(x *trial)
}

// matrix is all rows, by what breaks.
func matrix() []row {
	return slices.Concat(serverRows, networkRows, replyRows, callerRows, lifeRows, clockRows, sentinelRows, clusterRows, pressureRows)
}

// full is whether all rows run, at full length.
var full = os.Getenv("FAULTS") == "full"

// length is how long the fault lasts in this run, 0 where the row is not part of it.
func (r row) length() time.Duration {
	if full {
		return r.full
	}
	return r.short
}

func TestMatrix(t *testing.T) {
	for _, r := range matrix() {
		if r.length() == 0 {
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			for again := 1; !try(t, r, again == tries); again++ {
				awaitQuiet()
			}
		})
	}
}

// try runs a row once, and reports whether that is its result: what a stalled machine missed is not, unless it is the last try. In make
// test no miss is before that: other work may take the machine for less time than stalls shows.
func try(t *testing.T, r row, last bool) (settled bool) {
	t.Run(r.fault, func(t *testing.T) {
		watch := watchStalls()
		x := &trial{T: t, row: r, length: r.length(), stalls: watch}
		defer func() {
			busy := watch.end()
			x.machine = watch.String()
			if watch.starved() && !full {
				x.missed, x.wrong = append(x.missed, x.wrong...), nil
			}
			settled = last || full && !busy || t.Failed() || len(x.wrong) > 0 || len(x.missed) == 0
			x.write(settled, busy && !full)
		}()
		r.run(x)
	})
	return settled
}

func TestMain(m *testing.M) {
	code := servers.Main(m)
	printTable(os.Stdout)
	os.Exit(code)
}

// table is a line for each row that ran, in order.
var table []string

const columns = "row\tfault\tfor\tanswers\tdegraded\tlate\topen after\tclosed after\tdecided\tapplied\tunknown\tmachine stalled\tverdict\t"

// write puts what is known about a trial into the table, also of one that failed, and fails the test if that is the result. With excused
// what was missed because the machine was busy with something else does not fail it.
func (x *trial) write(settled, excused bool) {
	x.Helper()
	broken := append(x.wrong, x.missed...)
	verdict := "green"
	switch {
	case !settled:
		verdict = "again: " + strings.Join(broken, "; ")
	case excused && len(x.wrong) == 0 && len(x.missed) > 0 && !x.Failed():
		verdict = "times not judged, the machine is busy: " + strings.Join(x.missed, "; ")
	case x.Failed() || len(broken) > 0:
		verdict = "RED: " + strings.Join(broken, "; ")
		for _, text := range broken {
			x.Error(text)
		}
	}
	notes := strings.Join(x.notes, "; ")
	if notes != "" {
		verdict += " (" + notes + ")"
	}
	fields := []any{x.id, x.fault, x.length, x.seen.answers, x.seen.degraded, fmt.Sprintf("%.2f%%", 100*x.seen.late), span(x.seen.opened), span(x.seen.closed)}
	fields = append(fields, x.seen.decided, x.seen.applied, x.seen.unknown, x.machine, verdict)
	var line strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&line, "%v\t", f)
	}
	table = append(table, line.String())
	x.Log(strings.ReplaceAll(line.String(), "\t", " | "))
}

// span writes a time that may not have come.
func span(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Millisecond).String()
}

func printTable(out io.Writer) {
	if len(table) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n%s\n", columns, strings.Join(table, "\n"))
	w.Flush()
}
