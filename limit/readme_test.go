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

// readExample reads the table of the worked example.
func readExample(t *testing.T) []exampleRow {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []exampleRow
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "| at | op | cost | outcome | remaining | charged | reset after | retry after |") {
			inside = true
			continue
		}
		if !strings.HasPrefix(line, "|") {
			inside = false
		}
		if inside && !strings.HasPrefix(line, "|--") {
			rows = append(rows, readRow(t, i+1, strings.Split(strings.Trim(line, "| "), "|")))
		}
	}
	if len(rows) < 10 {
		t.Fatalf("README.md has %d rows in its worked example: it has another shape than this test reads", len(rows))
	}
	return rows
}

func readRow(t *testing.T, line int, cells []string) exampleRow {
	t.Helper()
	span := func(i int) time.Duration {
		d, err := time.ParseDuration(strings.TrimSpace(cells[i]))
		if err != nil {
			t.Fatalf("README.md:%d: %v", line, err)
		}
		return d
	}
	number := func(i int) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(cells[i]), 10, 64)
		if err != nil {
			t.Fatalf("README.md:%d: %v", line, err)
		}
		return n
	}
	op, known := map[string]limit.Op{"Spend": limit.Spend, "Peek": limit.Peek, "Refund": limit.Refund, "Debit": limit.Debit}[strings.TrimSpace(cells[1])]
	outcome := map[string]limit.Outcome{"allowed": limit.Allowed, "refused": limit.Refused}[strings.TrimSpace(cells[3])]
	if !known || outcome == limit.Undecided {
		t.Fatalf("README.md:%d: %q is no op or %q no outcome", line, cells[1], cells[3])
	}
	return exampleRow{
		line:   line,
		at:     span(0),
		charge: limit.Charge{Key: "example", Limit: bucket(6, mnt, 3), Op: op, Cost: number(2)},
		want:   limit.Decision{Outcome: outcome, Remaining: number(4), Charged: number(5), ResetAfter: span(6), RetryAfter: span(7)},
	}
}

func TestWorkedExample(t *testing.T) {
	const future = 4_102_444_800_000_000 // the year 2100, or Redis would forget the key at once
	client := connect(t)
	var state limit.State
	for _, row := range readExample(t) {
		now := future + row.at.Microseconds()
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
