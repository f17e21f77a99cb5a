package limit_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mesh/spillway/limit"
)

// client is one counter and one record under a penalty, at a time that the test says.
type client struct {
	state  limit.State
	record limit.Record
	charge limit.Charge
}

// offender is a client whose counter has nothing left for a hundred years.
func offender(p limit.Penalty) *client {
	l := bucket(1, 365*24*time.Hour, 1)
	return &client{state: limit.State{At: start, Used: 1}, charge: limit.Charge{Key: "k", Limit: l, Cost: 1, Penalty: &p, PenaltyKey: "p"}}
}

func (c *client) spend(after time.Duration) limit.Decision {
	var d [1]limit.Decision
	limit.Judge([]*limit.State{&c.state}, []*limit.Record{&c.record}, []limit.Charge{c.charge}, false, start+after.Microseconds(), d[:])
	return d[0]
}

// penaltyRow is one request, and what the penalty makes of it.
type penaltyRow struct {
	after     time.Duration // since start
	penalized bool
	retry     time.Duration // 0: longer than any cool-down, which is the counter's own
}

func runPenalty(t *testing.T, c *client, rows []penaltyRow) {
	t.Helper()
	for i, row := range rows {
		d := c.spend(row.after)
		if d.RetryAfter > 48*time.Hour {
			d.RetryAfter = 0
		}
		if d.Outcome != limit.Refused || d.Penalized != row.penalized || d.RetryAfter != row.retry || d.Charged != 0 {
			t.Fatalf("step %d after %v: %+v, want refused, penalized %v, retry after %v", i+1, row.after, d, row.penalized, row.retry)
		}
	}
}

func TestPenaltyStartsWithTheThreshold(t *testing.T) {
	runPenalty(t, offender(limit.Penalty{Threshold: 3, Window: mnt, CoolDown: 10 * sec}), []penaltyRow{
		{0, false, 0},
		{sec, false, 0},
		{2 * sec, false, 0}, // the third starts a cool-down until 12 s
		{2 * sec, true, 10 * sec},
		{7 * sec, true, 5 * sec},
		{12*sec - us, true, us},
		{12 * sec, false, 0}, // those before do not count again: one
		{13 * sec, false, 0},
		{14 * sec, false, 0}, // three
		{15 * sec, true, 9 * sec},
	})
}

func TestPenaltyForgetsOldRefusals(t *testing.T) {
	runPenalty(t, offender(limit.Penalty{Threshold: 3, Window: mnt, CoolDown: 10 * sec}), []penaltyRow{
		{0, false, 0},
		{30 * sec, false, 0},
		{60 * sec, false, 0}, // the first is a whole window old
		{61 * sec, false, 0}, // this is the third within a window
		{62 * sec, true, 9 * sec},
	})
}

func TestPenaltyRises(t *testing.T) {
	runPenalty(t, offender(limit.Penalty{Threshold: 1, Window: mnt, CoolDown: 10 * sec, Multipliers: []int64{1, 2, 4}}), []penaltyRow{
		{0, false, 0},
		{1 * sec, true, 9 * sec},
		{10 * sec, false, 0}, // the second: 20 s
		{11 * sec, true, 19 * sec},
		{30 * sec, false, 0}, // the third: 40 s
		{30 * sec, true, 40 * sec},
		{70 * sec, false, 0}, // the first ended a window ago, the last two count: 40 s again
		{71 * sec, true, 39 * sec},
		{170 * sec, false, 0}, // the last ended a minute ago: from the beginning
		{171 * sec, true, 9 * sec},
	})
}

// TestPenaltyRisesThoughACoolDownIsLongerThanTheWindow: one that has just ended was had within the window.
func TestPenaltyRisesThoughACoolDownIsLongerThanTheWindow(t *testing.T) {
	runPenalty(t, offender(limit.Penalty{Threshold: 1, Window: sec, CoolDown: mnt, Multipliers: []int64{1, 5}}), []penaltyRow{
		{0, false, 0},
		{mnt - us, true, us},
		{mnt, false, 0},
		{mnt, true, 5 * mnt},
		{6*mnt + sec, false, 0},
		{6*mnt + sec, true, mnt},
	})
}

func TestPenaltyIsForRefusedSpendsOnly(t *testing.T) {
	c := offender(limit.Penalty{Threshold: 2, Window: mnt, CoolDown: mnt})
	for _, op := range []limit.Op{peeking, refunding, debiting, peeking} {
		c.charge.Op = op
		c.spend(0)
	}
	if !c.record.Empty() {
		t.Fatalf("peeks, refunds and debits left %+v", c.record)
	}
	c.state, c.charge.Op = limit.State{}, spending
	if d := c.spend(0); d.Outcome != limit.Allowed || !c.record.Empty() {
		t.Fatalf("an admitted spend said %+v and left %+v", d, c.record)
	}
	c.spend(0)
	c.spend(0)
	c.charge.Op = peeking
	if d := c.spend(sec); d.Outcome != limit.Refused || !d.Penalized || d.RetryAfter != 59*sec {
		t.Errorf("a peek during a cool-down said %+v, want refused for 59s", d)
	}
	c.charge.Op = refunding
	if d := c.spend(sec); d.Outcome != limit.Allowed || d.Penalized || d.Charged != -1 {
		t.Errorf("a refund during a cool-down said %+v, want 1 given back", d)
	}
}

func TestPenaltyRefusesThoughTheCounterIsFull(t *testing.T) {
	c := offender(limit.Penalty{Threshold: 1, Window: mnt, CoolDown: mnt})
	c.spend(0)
	c.state = limit.State{}
	want := limit.Decision{At: start + 20_000_000, Outcome: limit.Refused, Remaining: 1, RetryAfter: 40 * sec, Penalized: true}
	if diff := cmp.Diff(want, c.spend(20*sec)); diff != "" {
		t.Errorf("in a cool-down, with tokens left (- want, + got):\n%s", diff)
	}
	c.charge.Each = true
	if diff := cmp.Diff(want, c.spend(20*sec)); diff != "" {
		t.Errorf("a charge that takes what is left (- want, + got):\n%s", diff)
	}
	if d := c.spend(mnt); d.Outcome != limit.Allowed || d.Charged != 1 {
		t.Errorf("after the cool-down: %+v, want allowed", d)
	}
}

func TestPenaltyThatIsOnlyShown(t *testing.T) {
	for name, change := range map[string]func(c *client){
		"dry run": func(c *client) { c.charge.Penalty.DryRun = true },
		"shadow":  func(c *client) { c.charge.Mode = limit.Shadow },
	} {
		c := offender(limit.Penalty{Threshold: 2, Window: mnt, CoolDown: 10 * sec})
		change(c)
		runPenalty(t, c, []penaltyRow{{0, false, 0}, {0, false, 0}, {sec, true, 0}, {9 * sec, true, 0}, {10 * sec, false, 0}, {11 * sec, false, 0}, {12 * sec, true, 0}})
		c.state = limit.State{}
		if d := c.spend(13 * sec); d.Outcome != limit.Allowed || !d.Penalized || d.Charged != 1 {
			t.Errorf("%s, with tokens left: %+v, want allowed, charged and penalized", name, d)
		}
	}
}

// TestPenaltyOfARefusedRequest: nothing is charged, but the refusal of the charge that refused is recorded, and no other.
func TestPenaltyOfARefusedRequest(t *testing.T) {
	p := &limit.Penalty{Threshold: 1, Window: mnt, CoolDown: mnt}
	states := []*limit.State{{}, {At: start, Used: 10}, {At: start, Used: 10}}
	records := []*limit.Record{{}, {}, nil}
	records[2] = records[1] // two limits of one rule
	charges := []limit.Charge{
		{Key: "wide", Limit: bucket(10, sec, 10), Cost: 1, Penalty: p, PenaltyKey: "a"},
		{Key: "spent", Limit: bucket(10, sec, 10), Cost: 1, Penalty: p, PenaltyKey: "b"},
		{Key: "spent too", Limit: bucket(10, time.Hour, 10), Cost: 1, Penalty: p, PenaltyKey: "b"},
	}
	decisions := make([]limit.Decision, 3)
	limit.Judge(states, records, charges, false, start, decisions)
	if states[0].Used != 0 || !records[0].Empty() {
		t.Errorf("the limit with room was charged %d and recorded %+v", states[0].Used, records[0])
	}
	if want := []int64{start + mnt.Microseconds()}; !slices.Equal(records[1].Ends, want) {
		t.Errorf("two limits of one rule refused and left %+v, want one cool-down", records[1])
	}
	if decisions[1].RetryAfter != mnt || decisions[2].RetryAfter != 6*mnt {
		t.Errorf("retry after %v and %v, want the cool-down's 1m0s and the counter's 6m0s", decisions[1].RetryAfter, decisions[2].RetryAfter)
	}
}

func TestPenaltyClockSetBack(t *testing.T) {
	c := offender(limit.Penalty{Threshold: 2, Window: mnt, CoolDown: 10 * sec, Multipliers: []int64{1, 3}})
	runPenalty(t, c, []penaltyRow{
		{time.Hour, false, 0},
		{time.Hour - 30*sec, false, 0}, // bears the instant of the one before, and the cool-down begins now
		{time.Hour - 30*sec, true, 10 * sec},
		{time.Hour - 40*sec, true, 20 * sec}, // never shorter
		{0, true, 30 * sec},                  // but no longer than the longest one
		{30*sec - us, true, us},
		{30 * sec, false, 0},
	})
	c = offender(limit.Penalty{Threshold: 3, Window: mnt, CoolDown: 10 * sec})
	runPenalty(t, c, []penaltyRow{{time.Hour, false, 0}, {time.Hour, false, 0}, {0, false, 0}, {sec, true, 9 * sec}})
}

func TestPenaltyChangedInFlight(t *testing.T) {
	c := offender(limit.Penalty{Threshold: 9, Window: mnt, CoolDown: time.Hour})
	for range 8 {
		c.spend(0)
	}
	c.charge.Penalty = &limit.Penalty{Threshold: 3, Window: mnt, CoolDown: time.Hour}
	c.spend(0)
	c.charge.Penalty = &limit.Penalty{Threshold: 3, Window: mnt, CoolDown: mnt}
	if d := c.spend(0); !d.Penalized || d.RetryAfter != mnt {
		t.Errorf("after the cool-down was lowered: %+v, want its 1m", d)
	}
}

// TestPenaltyOutOfBounds brings numbers that no rule file may have: the record stays small and no wait is negative.
func TestPenaltyOutOfBounds(t *testing.T) {
	for _, p := range []limit.Penalty{
		{}, {Threshold: -1, Window: -1, CoolDown: -1, Multipliers: []int64{-1}},
		{Threshold: math.MaxInt64, Window: math.MaxInt64, CoolDown: math.MaxInt64, Multipliers: slices.Repeat([]int64{math.MaxInt64}, 100)},
	} {
		c := offender(p)
		for i := range 5000 {
			d := c.spend(time.Duration(i) * sec)
			if d.RetryAfter <= 0 || d.Penalized && d.RetryAfter > limit.MaxCoolDown {
				t.Fatalf("%+v: %+v", p, d)
			}
		}
		if len(c.record.Ends) > limit.MaxMultipliers || len(c.record.Refusals) >= limit.MaxThreshold {
			t.Errorf("%+v left %d cool-downs and %d refusals", p, len(c.record.Ends), len(c.record.Refusals))
		}
	}
}

// TestPenaltyIsWhatItsDefinitionSays holds the record against plain lists of all that ever happened.
func TestPenaltyIsWhatItsDefinitionSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := limit.Penalty{
			Threshold:   rapid.Int64Range(1, 6).Draw(t, "threshold"),
			Window:      time.Duration(rapid.Int64Range(1, 100).Draw(t, "window")) * sec,
			CoolDown:    time.Duration(rapid.Int64Range(1, 100).Draw(t, "cool-down")) * sec,
			Multipliers: rapid.SliceOfN(rapid.Int64Range(1, 8), 1, 5).Draw(t, "multipliers"),
		}
		c, now, until := offender(p), time.Duration(0), time.Duration(0)
		var counted, ended []time.Duration
		within := func(all []time.Duration) (n int64) {
			for _, at := range all {
				if at > now-p.Window {
					n++
				}
			}
			return n
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += time.Duration(rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 150)).Draw(t, "pause")) * sec
			d := c.spend(now)
			if d.Penalized != (now < until) || d.Penalized && d.RetryAfter != until-now {
				t.Fatalf("at %v, with a cool-down until %v: %+v", now, until, d)
			}
			if d.Penalized {
				continue
			}
			counted = append(counted, now)
			if within(counted) < p.Threshold {
				continue
			}
			k := min(within(ended), int64(len(p.Multipliers)-1))
			until = now + p.CoolDown*time.Duration(p.Multipliers[k])
			counted, ended = nil, append(ended, until)
		}
		if end := c.record.Expires(&p, start); !c.record.Empty() && end <= start+now.Microseconds() {
			t.Fatalf("the record %+v ends before now", c.record)
		}
	})
}

// TestPenaltyRecordEndsWhenNothingInItMatters: from then on a fresh record answers alike.
func TestPenaltyRecordEndsWhenNothingInItMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := limit.Penalty{Threshold: rapid.Int64Range(1, 3).Draw(t, "threshold"), Window: mnt, CoolDown: 10 * sec, Multipliers: []int64{1, 2, 4}}
		c, now := offender(p), time.Duration(0)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 40).Draw(t, "pause")) * sec
			c.spend(now)
		}
		now = time.Duration(c.record.Expires(&p, start)-start) * us
		fresh := offender(p)
		for range 8 {
			if old, new := c.spend(now), fresh.spend(now); old != new {
				t.Fatalf("at %v the record %+v says %+v, a fresh one %+v", now, c.record, old, new)
			}
			now += 5 * sec
		}
	})
}

// TestPenaltyRecordIsSmall fills a record with many refusals on the server: 8 bytes each, and what is over goes.
func TestPenaltyRecordIsSmall(t *testing.T) {
	client := connect(t)
	p := limit.Penalty{Threshold: 40, Window: time.Hour, CoolDown: sec, Multipliers: []int64{1, 2}}
	charge := limit.Charge{Key: "counter", Limit: bucket(1, sec, 1), Cost: 2, Penalty: &p, PenaltyKey: "record"}
	refuse := func(times int, after time.Duration, size int64) {
		t.Helper()
		for range times {
			if _, _, err := run(client, future+after.Microseconds(), charge); err != nil {
				t.Fatal(err)
			}
		}
		if got := client.StrLen(t.Context(), "record").Val(); got != size {
			t.Fatalf("after %d more refusals at %v the record has %d bytes, want %d", times, after, got, size)
		}
	}
	refuse(39, 0, 1+39*8)
	refuse(1, 0, 1+8)                        // a cool-down, and no refusal
	refuse(5, 0, 1+8)                        // which do not count
	refuse(30, 2*sec, 1+8+30*8)              //
	refuse(1, time.Hour+sec, 1+31*8)         // the cool-down ended an hour ago
	refuse(1, time.Hour+2*sec, 1+2*8)        // and so did what came after it
	refuse(30, 2*time.Hour+10*sec, 1+30*8)   //
	refuse(1, 2*time.Hour+10*sec+us, 1+31*8) //
}
