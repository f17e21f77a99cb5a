package limit

import (
	"fmt"
	"testing"
	"time"
)

// shares is a charge of one token on a counter of so many, in short.
func shares(key string, count int64, change func(*Charge)) Charge {
	c := Charge{Key: key, Limit: fixed(count, mnt), Cost: 1}
	if change != nil {
		change(&c)
	}
	return c
}

func quota(c *Charge)  { c.Mode = Quota }
func shadow(c *Charge) { c.Mode = Shadow }
func each(c *Charge)   { c.Each = true }

func cost(n int64, changes ...func(*Charge)) func(*Charge) {
	return func(c *Charge) {
		c.Cost = n
		for _, change := range changes {
			change(c)
		}
	}
}

// TestSeveralCharges: what each charge of a request decides and takes, in the form "outcome charged remaining".
func TestSeveralCharges(t *testing.T) {
	t.Parallel()
	l := startLua(t)
	for name, row := range map[string]struct {
		refused bool
		charges []Charge
		want    string
	}{
		"all pass":            {false, []Charge{shares("a", 5, nil), shares("b", 3, nil)}, "1 1 4, 1 1 2"},
		"one refuses":         {false, []Charge{shares("a", 5, nil), shares("b", 0, nil)}, "1 0 5, 2 0 0"},
		"the first refuses":   {false, []Charge{shares("a", 0, nil), shares("b", 5, nil)}, "2 0 0, 1 0 5"},
		"a shadow refuses":    {false, []Charge{shares("a", 5, nil), shares("b", 0, shadow)}, "1 1 4, 2 0 0"},
		"each is charged":     {false, []Charge{shares("a", 5, each), shares("b", 0, nil)}, "1 1 4, 2 0 0"},
		"each takes the rest": {false, []Charge{shares("a", 5, cost(7, each)), shares("b", 9, nil)}, "2 5 0, 1 0 9"},
		"a shadow takes it": {
			false, []Charge{shares("a", 5, cost(7, each, shadow)), shares("b", 9, nil)}, "2 5 0, 1 1 8",
		},
		"one quota has room": {false, []Charge{shares("a", 0, quota), shares("b", 2, quota)}, "2 0 0, 1 1 1"},
		"no quota has room": {
			false, []Charge{shares("a", 0, quota), shares("b", 0, quota), shares("c", 2, nil)}, "2 0 0, 2 0 0, 1 0 2",
		},
		"a quota beside rules": {false, []Charge{shares("a", 2, quota), shares("b", 0, nil)}, "1 0 2, 2 0 0"},
		"refused elsewhere":    {true, []Charge{shares("a", 5, nil), shares("b", 5, each)}, "1 0 5, 1 1 4"},
		"one key":              {false, []Charge{shares("a", 3, cost(2)), shares("a", 3, nil)}, "1 2 1, 1 1 0"},
		"one key, too little":  {false, []Charge{shares("a", 3, cost(2)), shares("a", 3, cost(2))}, "1 0 3, 2 0 3"},
		"one key, each": {
			false, []Charge{shares("a", 3, cost(2, each)), shares("a", 3, cost(2, each))}, "1 2 1, 2 1 0",
		},
		"outcomes stay": {
			false, []Charge{shares("a", 3, cost(3)), shares("a", 3, cost(1, each)), shares("b", 0, nil)},
			"1 0 3, 2 1 2, 2 0 0",
		},
		"costs of 0": {false, []Charge{shares("a", 0, cost(0)), shares("b", 1, cost(0))}, "2 0 0, 1 0 1"},
	} {
		m := newMemory()
		for i := range row.charges {
			row.charges[i].Key = name + row.charges[i].Key
		}
		o := order{charges: row.charges, refused: row.refused}
		redis, err := l.decide(Together, future, o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for twin, decisions := range map[string][]Decision{"Redis": redis[0], "Go": m.decide(future, o)} {
			got := ""
			for i, d := range decisions {
				if i > 0 {
					got += ", "
				}
				got += fmt.Sprint(d.Outcome, " ", d.Charged, " ", d.Remaining)
			}
			if got != row.want {
				t.Errorf("%s, %s: %s, want %s", name, twin, got, row.want)
			}
		}
		refused := row.refused || Refuses(row.charges, redis[0])
		if took := redis[0][0].Charged > 0; took && refused && !row.charges[0].Each {
			t.Errorf("%s: a refused request is charged", name)
		}
	}
}

// changes is a table of charges on one counter whose limit or clock changes.
type changes []struct {
	at        time.Duration
	limit     Limit
	op        Op
	cost      int64
	outcome   Outcome
	remaining int64
	reset     time.Duration
}

// TestChanges: a limit that changes keeps counting sensibly, and so does one whose clock is set back.
func TestChanges(t *testing.T) {
	t.Parallel()
	l := startLua(t)
	for name, rows := range map[string]changes{
		"the rate of a bucket is raised": {
			{0, bucket(100, mnt, 100), Spend, 60, Allowed, 40, 36 * sec},
			{0, bucket(1000, mnt, 1000), Peek, 1, Allowed, 400, 36 * sec},
			{0, bucket(10, mnt, 10), Peek, 1, Allowed, 4, 36 * sec},
		},
		"the burst is lowered": {
			{0, bucket(1, sec, 1000), Spend, 1000, Allowed, 0, 1000 * sec},
			{0, bucket(1, sec, 10), Peek, 1, Refused, 0, 70 * sec},
		},
		"a bucket is closed and opened": {
			{0, bucket(10, mnt, 10), Spend, 5, Allowed, 5, 30 * sec},
			{0, bucket(0, mnt, 10), Spend, 1, Refused, 0, 30 * sec},
			{0, bucket(10, mnt, 10), Peek, 1, Allowed, 5, 30 * sec},
		},
		"the count of a window changes": {
			{0, fixed(10, mnt), Spend, 6, Allowed, 4, mnt},
			{0, fixed(5, mnt), Peek, 1, Refused, 0, mnt},
			{0, fixed(20, mnt), Spend, 1, Allowed, 13, mnt},
		},
		"the window changes": {
			{sec, fixed(10, mnt), Spend, 6, Allowed, 4, 59 * sec},
			{sec, fixed(10, time.Hour), Spend, 1, Allowed, 3, time.Hour - sec},
			{2 * sec, fixed(10, mnt), Spend, 1, Allowed, 2, 58 * sec},
		},
		"the clock of a window is set back": {
			{90 * sec, fixed(10, mnt), Spend, 6, Allowed, 4, 30 * sec},
			{50 * sec, fixed(10, mnt), Spend, 1, Allowed, 3, 70 * sec},
			{-5 * mnt, fixed(10, mnt), Spend, 1, Allowed, 2, mnt},
		},
		"the clock of a sliding window is set back": {
			{90 * sec, sliding(10, mnt), Spend, 6, Allowed, 4, 90 * sec},
			{50 * sec, sliding(10, mnt), Spend, 1, Allowed, 3, 130 * sec},
		},
		"the clock of a bucket is set back": {
			{90 * sec, bucket(10, mnt, 10), Spend, 6, Allowed, 4, 36 * sec},
			{80 * sec, bucket(10, mnt, 10), Peek, 1, Allowed, 2, 46 * sec},
			{-time.Hour, bucket(10, mnt, 10), Peek, 1, Refused, 0, 2 * mnt},
		},
		"the clock of a log is set back": {
			{90 * sec, logged(10, mnt), Spend, 6, Allowed, 4, mnt},
			{80 * sec, logged(10, mnt), Spend, 1, Allowed, 3, 70 * sec},
			{-time.Hour, logged(10, mnt), Spend, 1, Allowed, 2, mnt},
		},
		"a window takes nothing back after its end": {
			{0, sliding(10, mnt), Spend, 6, Allowed, 4, 2 * mnt},
			{70 * sec, sliding(10, mnt), Refund, 6, Allowed, 5, 50 * sec},
		},
	} {
		m := newMemory()
		for i, row := range rows {
			c := Charge{Key: name, Limit: row.limit, Op: row.op, Cost: row.cost}
			now := future + row.at.Microseconds()
			got, twin := l.charge(now, c)[0], m.decide(now, order{charges: []Charge{c}})[0]
			good := got.Outcome == row.outcome && got.Remaining == row.remaining && got.ResetAfter == row.reset
			if !good || got != twin {
				t.Errorf("%s, row %d:\nRedis %+v\nGo    %+v\nwant %+v", name, i+1, got, twin, row)
			}
		}
	}
}

// TestRefundUntil: until its end a refund gives back all, at its end nothing.
func TestRefundUntil(t *testing.T) {
	t.Parallel()
	days := fixed(9, 24*time.Hour)
	days.Calendar = calendarDays
	limits := []Limit{bucket(10, mnt, 10), bucket(7, sec, 9), fixed(9, mnt), days, sliding(9, mnt), logged(9, mnt)}
	for _, limit := range limits {
		for _, late := range []bool{false, true} {
			m, now := newMemory(), int64(future+1_234_567)
			c := Charge{Key: "k", Limit: limit, Cost: 3}
			d := m.decide(now, order{charges: []Charge{c}})[0]
			c.Op, c.Until = Refund, RefundUntil(limit, &d)
			at := now
			if late {
				at = c.Until
			}
			got := m.decide(at, order{charges: []Charge{c}})[0]
			if want := map[bool]int64{true: 0, false: -3}[late]; got.Charged != want {
				t.Errorf("%+v, late %v: %+v, want %d", limit, late, got, want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	good := []Limit{
		bucket(0, ms, 0), bucket(MaxCount, ms, MaxCount), fixed(5, MaxWindow), logged(MaxLogCount, sec),
		sliding(1, mnt),
		{Algorithm: FixedWindow, Count: 1, Window: sec, Calendar: calendarDays},
	}
	bad := []Limit{
		{}, {Algorithm: SlidingLog + 1, Count: 1, Window: sec}, bucket(-1, sec, 1), bucket(1, sec, -1),
		bucket(MaxCount+1, sec, 1), bucket(1, sec, MaxCount+1), bucket(1, MaxWindow, 12), fixed(1, 0), fixed(1, us),
		fixed(1, sec+us), fixed(1, MaxWindow+ms),
		logged(MaxLogCount+1, sec), {Algorithm: SlidingWindow, Count: 1, Window: sec, Calendar: calendarDays},
	}
	for _, l := range good {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, l := range bad {
		if l.Validate() == nil {
			t.Errorf("%+v must be refused", l)
		}
		c := Charge{Limit: l, Cost: MaxCost, Each: true}
		if d := newMemory().decide(future, order{charges: []Charge{c}})[0]; d.Charged > MaxCount {
			t.Errorf("%+v admits without end: %+v", l, d)
		}
	}
}
