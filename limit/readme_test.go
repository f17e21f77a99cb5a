package limit_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// exampleRow is one row of the worked example in README.md.
type exampleRow struct {
	line   int
	at     time.Duration
	charge limit.Charge
	want   limit.Decision
}

// tableRow is one row of a table in README.md, which knows where it stands.
type tableRow struct {
	t     *testing.T
	line  int
	cells []string
}

// readTable reads the rows of the table under a head.
func readTable(t *testing.T, head string, least int) []tableRow {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []tableRow
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		if line == head {
			inside = true
			continue
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
		}
		if inside && !strings.HasPrefix(line, "|--") {
			rows = append(rows, tableRow{t, i + 1, strings.Split(strings.Trim(line, "|"), "|")})
		}
	}
	if len(rows) < least {
		t.Fatalf("README.md has %d rows under %s: it has another shape than this test reads", len(rows), head)
	}
	return rows
}

func (r tableRow) text(i int) string { return strings.TrimSpace(r.cells[i]) }

func (r tableRow) span(i int) time.Duration {
	r.t.Helper()
	d, err := time.ParseDuration(r.text(i))
	if err != nil {
		r.t.Fatalf("README.md:%d: %v", r.line, err)
	}
	return d
}

func (r tableRow) number(i int) int64 {
	r.t.Helper()
	n, err := strconv.ParseInt(r.text(i), 10, 64)
	if err != nil {
		r.t.Fatalf("README.md:%d: %v", r.line, err)
	}
	return n
}

// example reads what all tables of charges begin with: at, op, cost, outcome.
func (r tableRow) example() exampleRow {
	r.t.Helper()
	op, known := map[string]limit.Op{"Spend": limit.Spend, "Peek": limit.Peek, "Refund": limit.Refund, "Debit": limit.Debit}[r.text(1)]
	outcome := map[string]limit.Outcome{"allowed": limit.Allowed, "refused": limit.Refused}[r.text(3)]
	if !known || outcome == limit.Undecided {
		r.t.Fatalf("README.md:%d: %q is no op or %q no outcome", r.line, r.text(1), r.text(3))
	}
	return exampleRow{
		line:   r.line,
		at:     r.span(0),
		charge: limit.Charge{Key: "example", Limit: bucket(6, mnt, 3), Op: op, Cost: r.number(2)},
		want:   limit.Decision{Outcome: outcome},
	}
}

func readExample(t *testing.T) []exampleRow {
	t.Helper()
	var rows []exampleRow
	for _, r := range readTable(t, "| at | op | cost | outcome | remaining | charged | reset after | retry after |", 10) {
		row := r.example()
		row.want.Remaining, row.want.Charged, row.want.ResetAfter, row.want.RetryAfter = r.number(4), r.number(5), r.span(6), r.span(7)
		rows = append(rows, row)
	}
	return rows
}

// future is the year 2100: at a time that has passed, Redis would forget the keys at once.
const future = 4_102_444_800_000_000

func TestThrottleExample(t *testing.T) {
	client := connect(t)
	var state limit.State
	for _, r := range readTable(t, "| at | op | cost | outcome | charged | wait | retry after |", 8) {
		row := r.example()
		row.charge.MaxWait = 25 * sec
		row.want.Charged, row.want.Wait, row.want.RetryAfter = r.number(4), r.span(5), r.span(6)
		now := future + row.at.Microseconds()
		lua, _, err := run(client, now, row.charge)
		if err != nil {
			t.Fatalf("README.md:%d: %v", row.line, err)
		}
		for twin, got := range map[string]limit.Decision{"Go": spend(t, &state, row.charge, now), "Lua": lua[0]} {
			got.At, got.Remaining, got.ResetAfter = 0, 0, 0
			if got != row.want {
				t.Errorf("README.md:%d: %s says\n%+v, the page\n%+v", row.line, twin, got, row.want)
			}
		}
	}
}

func TestPenaltyExample(t *testing.T) {
	client := connect(t)
	c := offender(limit.Penalty{Threshold: 3, Window: mnt, CoolDown: 10 * sec, Multipliers: []int64{1, 2, 4}})
	c.state.At = future
	spent := limit.Charge{Key: "k", Limit: c.charge.Limit, Cost: 1}
	if _, _, err := run(client, future, spent); err != nil {
		t.Fatal(err)
	}
	for _, r := range readTable(t, "| at | penalized | retry after | why |", 10) {
		at := r.span(0)
		lua, _, err := run(client, future+at.Microseconds(), c.charge)
		if err != nil {
			t.Fatalf("README.md:%d: %v", r.line, err)
		}
		for twin, got := range map[string]limit.Decision{"Go": c.spend(at + (future-start)*us), "Lua": lua[0]} {
			retry := "counter"
			if got.RetryAfter < time.Hour {
				retry = got.RetryAfter.String()
			}
			if got.Outcome != limit.Refused || got.Penalized != (r.text(1) == "yes") || retry != r.text(2) {
				t.Errorf("README.md:%d: %s says %+v, the page penalized %s, retry after %s", r.line, twin, got, r.text(1), r.text(2))
			}
		}
	}
}

func TestWorkedExample(t *testing.T) {
	client := connect(t)
	var state limit.State
	for _, row := range readExample(t) {
		now := future + row.at.Microseconds()
		row.want.At = now
		if got := spend(t, &state, row.charge, now); got != row.want {
			t.Errorf("README.md:%d: Go says\n%+v, the page\n%+v", row.line, got, row.want)
		}
		got, _, err := run(client, now, row.charge)
		if err != nil {
			t.Fatalf("README.md:%d: %v", row.line, err)
		}
		if got[0] != row.want {
			t.Errorf("README.md:%d: Lua says\n%+v, the page\n%+v", row.line, got[0], row.want)
		}
	}
}
