package faults

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// row is one fault of the matrix.
type row struct {
	id    string
	fault string        // what happens, for people
	short time.Duration // how long in make test; 0: the row is in make test-all alone
	full  time.Duration // how long in make test-all
	run   func(x *trial)
}

// matrix is all rows, by what breaks.
func matrix() []row {
	return slices.Concat(serverRows, networkRows, replyRows, callerRows, lifeRows, clockRows, sentinelRows, clusterRows,
		pressureRows)
}

// full is whether all rows run, one at a time, at full length, and with their bounds on time. Otherwise eight rows run
// beside each other and prove what is decided, not how fast.
const full = servers.Full

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
			if !full {
				t.Parallel()
			}
			for n := 1; !try(t, r, !full || n == tries); n++ {
			}
		})
	}
}

// tries is how often a row may miss a bound on time before it fails. What was decided wrongly fails at once.
const tries = 3

// try runs a row once, and reports whether that is its result.
func try(t *testing.T, r row, last bool) (settled bool) {
	t.Run(r.fault, func(t *testing.T) {
		x := &trial{T: t, row: r, length: r.length()}
		defer func() {
			settled = last || t.Failed() || len(x.wrong) > 0 || len(x.missed) == 0
			x.write(settled)
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

// table is a line for each row that ran.
var table struct {
	sync.Mutex
	lines []string
}

const columns = "row\tfault\tfor\tanswers\tdegraded\tlate\topen after\tclosed " +
	"after\tdecided\tapplied\tunknown\tverdict\t"

// write puts what is known about a trial into the table, also of one that failed, and fails the test if that is the
// result.
func (x *trial) write(settled bool) {
	x.Helper()
	broken := append(x.wrong, x.missed...)
	verdict := "green"
	switch {
	case !settled:
		verdict = "again: " + strings.Join(broken, "; ")
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
	fields := []any{x.id, x.fault, x.length, x.seen.answers, x.seen.degraded, fmt.Sprintf("%.2f%%", 100*x.seen.late),
		span(x.seen.opened), span(x.seen.closed)}
	fields = append(fields, x.seen.decided, x.seen.applied, x.seen.unknown, verdict)
	var line strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&line, "%v\t", f)
	}
	table.Lock()
	defer table.Unlock()
	table.lines = append(table.lines, line.String())
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
	if len(table.lines) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n%s\n", columns, strings.Join(table.lines, "\n"))
	w.Flush()
}
