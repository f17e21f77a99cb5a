package limit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/limit"
)

// start is the instant that step tables count from: the beginning of a minute, an hour, a day and a 30-day window.
const start = 1_762_560_000_000_000

// stepRow is one request with one charge, and what comes of it.
type stepRow struct {
	after time.Duration // since start
	op    limit.Op
	cost  int64
	limit *limit.Limit // nil: that of the table
	each  bool

	want      limit.Outcome
	remaining int64
	charged   int64
	reset     time.Duration
	retry     time.Duration
}

// runSteps runs a table on one state, which it returns.
func runSteps(t *testing.T, l limit.Limit, rows []stepRow) limit.State {
	t.Helper()
	var state limit.State
	for i, row := range rows {
		used := l
		if row.limit != nil {
			used = *row.limit
		}
		now := start + row.after.Microseconds()
		got := spend(t, &state, limit.Charge{Limit: used, Op: row.op, Cost: row.cost, Each: row.each}, now)
		want := limit.Decision{At: now, Outcome: row.want, Remaining: row.remaining, Charged: row.charged, ResetAfter: row.reset, RetryAfter: row.retry}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d after %v, op %d, cost %d (- want, + got):\n%s", i+1, row.after, row.op, row.cost, diff)
		}
	}
	return state
}

// spend decides one charge on one state, of a limit that is valid.
func spend(t interface{ Fatalf(string, ...any) }, s *limit.State, c limit.Charge, now int64) limit.Decision {
	if err := c.Limit.Validate(); err != nil {
		t.Fatalf("limit %+v: %v", c.Limit, err)
	}
	var d [1]limit.Decision
	limit.Decide([]*limit.State{s}, []limit.Charge{c}, false, now, d[:])
	return d[0]
}

func show(s limit.State) string { return fmt.Sprintf("%+v", s) }

const (
	spending  = limit.Spend
	peeking   = limit.Peek
	refunding = limit.Refund
	debiting  = limit.Debit
	yes       = limit.Allowed
	no        = limit.Refused
)

const (
	us  = time.Microsecond
	ms  = time.Millisecond
	sec = time.Second
	mnt = time.Minute
)
