package limit

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// tableRow is one row of a table in README.md.
type tableRow struct {
	t     *testing.T
	line  int
	cells []string
}

// readTable reads the rows of the table number n under a head, of those with that head.
func readTable(t *testing.T, head string, least int) []tableRow {
	t.Helper()
	text := must.Get(os.ReadFile("README.md"))(t)
	var rows []tableRow
	inside := false
	for i, line := range strings.Split(string(text), "\n") {
		inside = strings.HasPrefix(line, "|") && (inside || line == head)
		if inside && line != head && !strings.HasPrefix(line, "|--") {
			rows = append(rows, tableRow{t, i + 1, strings.Split(strings.Trim(line, "|"), "|")})
		}
	}
	if len(rows) < least {
		t.Fatalf("README.md must have %d rows under %s, not %d", least, head, len(rows))
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

var ops = map[string]Op{
	"Spend": Spend, "Peek": Peek, "Refund": Refund, "Debit": Debit, "Lend": Lend, "Spent": Spent, "Returned": Returned,
}

// run decides the row's charge on both twins, and compares the columns from the fifth on.
func (r tableRow) run(l lua, m *memory, limit Limit, wait time.Duration, want Decision) {
	r.t.Helper()
	op, known := ops[r.text(1)]
	want.Outcome = map[string]Outcome{"allowed": Allowed, "refused": Refused}[r.text(3)]
	if !known || want.Outcome == Undecided {
		r.t.Fatalf("README.md:%d: %q must be an op and %q an outcome", r.line, r.text(1), r.text(3))
	}
	now := future + r.span(0).Microseconds()
	c := Charge{Key: "example", Limit: limit, Op: op, Cost: r.number(2), MaxWait: wait}
	if op >= Spent {
		c.Until = future + 200_000
	}
	got, twin := l.charge(now, c)[0], m.decide(now, order{charges: []Charge{c}})[0]
	if got != twin {
		r.t.Errorf("README.md:%d: Redis\n%+v, Go\n%+v", r.line, got, twin)
	}
	got.At = 0
	if wait > 0 {
		got.Remaining, got.ResetAfter = 0, 0
	}
	if got != want {
		r.t.Errorf("README.md:%d: decided\n%+v, the page\n%+v", r.line, got, want)
	}
}

func TestWorkedExample(t *testing.T) {
	t.Parallel()
	l, m := startLua(t), newMemory()
	head := "| at | op | cost | outcome | remaining | charged | reset after | retry after |"
	for _, r := range readTable(t, head, 12) {
		r.run(l, m, bucket(6, mnt, 3), 0, Decision{
			Remaining: r.number(4), Charged: r.number(5), ResetAfter: r.span(6), RetryAfter: r.span(7),
		})
	}
}

func TestThrottleExample(t *testing.T) {
	t.Parallel()
	l, m := startLua(t), newMemory()
	for _, r := range readTable(t, "| at | op | cost | outcome | charged | wait | retry after |", 8) {
		r.run(l, m, bucket(6, mnt, 3), 25*sec, Decision{Charged: r.number(4), Wait: r.span(5), RetryAfter: r.span(6)})
	}
}

func TestLeaseExample(t *testing.T) {
	t.Parallel()
	l, m := startLua(t), newMemory()
	head := "| at | op | cost | outcome | remaining | charged | reset after | wait or retry after |"
	for _, r := range readTable(t, head, 8) {
		want := Decision{Remaining: r.number(4), Charged: r.number(5), ResetAfter: r.span(6), Wait: r.span(7)}
		if r.text(3) == "refused" {
			want.Wait, want.RetryAfter = 0, want.Wait
		}
		r.run(l, m, bucket(100, sec, 40), 0, want)
	}
}

func TestPenaltyExample(t *testing.T) {
	t.Parallel()
	l, m := startLua(t), newMemory()
	for _, r := range readTable(t, "| at | penalized | retry after | why |", 13) {
		c, now := offender(), future+r.span(0).Microseconds()
		got, twin := l.charge(now, *c)[0], m.decide(now, order{charges: []Charge{*c}})[0]
		if got != twin {
			t.Errorf("README.md:%d: Redis\n%+v, Go\n%+v", r.line, got, twin)
		}
		var rest time.Duration
		retry := "counter"
		if c.Punishes(got) {
			rest = micros(l.punish(now, c))
			if other := m.cooling(c.PenaltyKey).Punish(c.Penalty, now); micros(other) != rest {
				t.Errorf("README.md:%d: Redis starts a cool-down of %v, Go of %v", r.line, rest, micros(other))
			}
		} else {
			rest = got.RetryAfter
		}
		if rest > 0 {
			retry = rest.String()
		}
		if got.Outcome != Refused || got.Penalized != (r.text(1) == "yes") || retry != r.text(2) {
			t.Errorf("README.md:%d: %+v, retry after %s", r.line, got, retry)
		}
	}
}
