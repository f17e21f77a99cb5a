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
	return slices.Concat(serverRows)
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
			x := &trial{T: t, row: r, length: r.length()}
			t.Cleanup(x.write)
			r.run(x)
		})
	}
}

func TestMain(m *testing.M) {
	code := servers.Main(m)
	printTable(os.Stdout)
	os.Exit(code)
}

// table is a line for each row that ran, in order.
var table []string

const columns = "row\tfault\tfor\tanswers\tdegraded\tlate\topen after\tclosed after\tdecided\tapplied\tunknown\tverdict\t"

// write puts what is known about a trial into the table, also of one that failed.
func (x *trial) write() {
	verdict := "green"
	if x.Failed() {
		verdict = "RED: " + strings.Join(x.broken, "; ")
	}
	notes := strings.Join(x.notes, "; ")
	if notes != "" {
		verdict += " (" + notes + ")"
	}
	fields := []any{x.id, x.fault, x.length, x.seen.answers, x.seen.degraded, fmt.Sprintf("%.2f%%", 100*x.seen.late), span(x.seen.opened), span(x.seen.closed)}
	fields = append(fields, x.seen.decided, x.seen.applied, x.seen.unknown, verdict)
	var line strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&line, "%v\t", f)
	}
	table = append(table, line.String())
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
