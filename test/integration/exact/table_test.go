//go:build full

package exact

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// row is one line of the table.
type row struct {
	scenario string
	n        int    // sidecars
	kind     string // algorithm
	each     int    // of the limit, for each sidecar
	run      func(x *trial)
}

func TestMain(m *testing.M) {
	code := servers.Main(m)
	os.RemoveAll(skewed.dir)
	printTable(os.Stdout)
	os.Exit(code)
}

// TestNothingIsAdmittedBeyondTheLimit is the table: every scenario with every number of sidecars and every algorithm
// that it runs with.
func TestNothingIsAdmittedBeyondTheLimit(t *testing.T) {
	for _, s := range scenarios() {
		for _, c := range s.cells() {
			r := row{scenario: s.name, n: c.n, kind: c.algorithm, each: s.each, run: s.run}
			t.Run(fmt.Sprintf("%s/%d/%s", r.scenario, r.n, r.kind), r.try)
		}
	}
}

// try runs a row and writes its line.
func (r row) try(t *testing.T) {
	x := newTrial(t, r)
	defer func() { x.verdict() }()
	r.run(x)
}

func newTrial(t *testing.T, r row) *trial {
	x := &trial{T: t, row: r, bound: boundOf(r.kind, r.n, r.each), wall: time.Now()}
	x.next = one
	x.hold("", x.bound, x.whole)
	return x
}

var table []string

const columns = "N\talgorithm\tscenario\tasked\tadmitted\tideal\tover-admitted\tclosest\tfalse " +
	"refusals\tutilisation\tlocal decisions\tverdict\t"

// Bars of the table.
const (
	leastUtilisation = 0.99
	// Where sidecars decide alone, as many admissions may be missed as utilisation may lack, and each time that callers
	// or servers change what they do, a part of what the counter holds: it is with sidecars that do not need it now, or
	// is gone with one.
	mostFalse = 1 - leastUtilisation
	lentPart  = 4
	// Callers that ask for less than so many times the limit, of twice, are on a machine that is too busy for
	// utilisation to be judged.
	leastOffered = 1.9
)

// result is the numbers of a line.
type result struct {
	admitted, ideal, asked int64
	worst                  breach
	falsely                int64
	locals                 int64
}

func (r result) utilisation() float64 { return float64(r.admitted) / float64(max(1, r.ideal)) }

// verdict judges the row, fails the test if it does not hold, and writes its line in any case.
func (x *trial) verdict() {
	x.Helper()
	r := result{worst: none("")}
	if !x.Failed() {
		r = x.measure()
		x.judge(r)
	}
	verdict := "green"
	if x.Failed() || len(x.problems) > 0 {
		verdict = "RED: " + strings.Join(x.problems, "; ")
		for _, text := range x.problems {
			x.Error(text)
		}
	}
	if len(x.notes) > 0 {
		verdict += " (" + strings.Join(x.notes, "; ") + ")"
	}
	ideal := []any{r.ideal, r.falsely, fmt.Sprintf("%.1f%%", 100*r.utilisation())}
	if x.varies {
		ideal = []any{"-", "-", "-"}
	}
	line := fmt.Sprintf("%d\t%s\t%s\t%d\t%d\t%v\t%d\t%d\t%v\t%v\t%d\t%s\t", x.n, x.algorithm, x.scenario, r.asked,
		r.admitted, ideal[0], max(0, r.worst.over()),
		r.worst.over(), ideal[1], ideal[2], r.locals, verdict)
	table = append(table, line)
	x.Log(strings.ReplaceAll(line, "\t", " | "))
}

// measure compares the history with the bounds.
func (x *trial) measure() result {
	x.Helper()
	h := x.whole()
	r := result{admitted: h.admitted(), asked: int64(len(h)), worst: none(""), locals: x.locals()}
	for i, l := range x.limits {
		part := l.history()
		found := l.check(part.spans())
		if found.over() > 0 {
			x.fails("over-admitted by %d%s, %v: %v", found.over(), l.what, l.bound, found)
		}
		r.worst = worse(r.worst, found)
		if i == 0 && !x.varies {
			r.ideal = part.ideal(l.bound)
			r.falsely = int64(len(part.falseRefusals(l.bound)))
		}
	}
	return r
}

// judge holds the numbers against the bars.
func (x *trial) judge(r result) {
	x.Helper()
	if r.admitted == 0 {
		x.fails("nothing was admitted, so nothing is proved")
	}
	for _, check := range x.checks {
		check()
	}
	x.judgeAnswers()
	most := int64(0)
	if x.lent > 0 {
		most = int64(mostFalse*float64(r.ideal)) + x.turns*x.capacity()/lentPart
	}
	if r.falsely > most {
		x.note("at most %d false refusals; %d tokens were leased", most, x.lent)
		x.fails("%d false refusals, at most %d", r.falsely, most)
	}
	if x.holds && r.locals == 0 {
		x.fails("no decision was local, so nothing is proved about leases")
	}
	x.judgeUse(r)
	if off := time.Since(x.wall) - time.Duration(time.Now().UnixNano()-x.wall.UnixNano()); off.Abs() >
		50*time.Millisecond {
		x.fails("the clock of this machine was set by %v while the row ran", off)
	}
}

// judgeAnswers notes what was decided without Redis, which refuses everything then, and what was not answered, which
// only some rows allow.
func (x *trial) judgeAnswers() {
	x.Helper()
	failures, admissions := map[string]int{}, 0
	for i := range x.seen {
		e := &x.seen[i]
		if e.failure == "" {
			continue
		}
		failures[e.failure]++
		if e.outcome == admitted {
			admissions++
		}
	}
	if admissions > 0 {
		x.fails("%d requests were admitted without Redis: %v", admissions, failures)
	}
	for failure, n := range failures {
		if strings.HasPrefix(failure, unanswered) && !x.mayFail {
			x.fails("%d requests have %s", n, failure)
		}
	}
	if n := failures["wrongtype"]; n > 0 {
		x.fails("%d times a sidecar could not read what another one wrote", n)
	}
	if len(failures) > 0 {
		x.note("without Redis: %v", failures)
	}
}

// judgeUse judges utilisation where callers asked for twice the limit.
func (x *trial) judgeUse(r result) {
	if !x.steady {
		return
	}
	first, last := int64(math.MaxInt64), int64(0)
	for i := range x.seen {
		first, last = min(first, x.seen[i].from), max(last, x.seen[i].from)
	}
	offered := float64(r.asked) * 1e6 / float64(max(1, last-first)) / float64(x.rate())
	switch {
	case offered < leastOffered:
		x.note("utilisation not judged: callers asked for %.2f times the limit", offered)
	case r.utilisation() < leastUtilisation:
		x.fails("utilisation is %.2f %%, at least %.0f %%", 100*r.utilisation(), 100*leastUtilisation)
	}
}

func printTable(out io.Writer) {
	if len(table) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s\n%s\n", columns, strings.Join(table, "\n"))
	w.Flush()
}
