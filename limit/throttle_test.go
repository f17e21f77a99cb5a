package limit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mesh/spillway/limit"
)

// throttleRow is one request on a token bucket, and when its answer may leave.
type throttleRow struct {
	after   time.Duration // since start
	op      limit.Op
	cost    int64
	maxWait time.Duration

	want    limit.Outcome
	charged int64
	wait    time.Duration
	retry   time.Duration
}

func runThrottle(t *testing.T, l limit.Limit, rows []throttleRow) {
	t.Helper()
	var state limit.State
	for i, row := range rows {
		d := spend(t, &state, limit.Charge{Limit: l, Op: row.op, Cost: row.cost, MaxWait: row.maxWait}, start+row.after.Microseconds())
		got := limit.Decision{Outcome: d.Outcome, Charged: d.Charged, Wait: d.Wait, RetryAfter: d.RetryAfter}
		want := limit.Decision{Outcome: row.want, Charged: row.charged, Wait: row.wait, RetryAfter: row.retry}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d after %v, op %d, cost %d (- want, + got):\n%s", i+1, row.after, row.op, row.cost, diff)
		}
		if d.Wait > 0 && d.Remaining != 0 {
			t.Fatalf("step %d: %d are left though tokens were taken in advance", i+1, d.Remaining)
		}
	}
}

func TestThrottleTakesInAdvance(t *testing.T) {
	runThrottle(t, bucket(10, sec, 2), []throttleRow{
		{0, spending, 2, sec, yes, 2, 0, 0},
		{0, spending, 1, 250 * ms, yes, 1, 100 * ms, 0},
		{0, peeking, 1, 250 * ms, yes, 0, 0, 0},         // could be taken in advance; the peek itself waits for nothing
		{0, spending, 1, 250 * ms, yes, 1, 200 * ms, 0}, // one after the other
		{0, spending, 1, 250 * ms, no, 0, 0, 300 * ms},  // too late
		{0, peeking, 1, 250 * ms, no, 0, 0, 300 * ms},   // and a peek says so
		{50 * ms, spending, 1, 250 * ms, yes, 1, 250 * ms, 0},
		{50 * ms, spending, 3, mnt, no, 0, 0, 450 * ms}, // above the burst: never, though the bucket is full again then
		{50 * ms, spending, 2, mnt, yes, 2, 450 * ms, 0},
		{50 * ms, spending, 1, 0, no, 0, 0, 550 * ms},
		{700 * ms, spending, 1, sec, yes, 1, 0, 0},
	})
}

// TestThrottleRefund gives a cancelled wait back: the next one gets its place, and those behind it keep their times.
func TestThrottleRefund(t *testing.T) {
	runThrottle(t, bucket(1, sec, 1), []throttleRow{
		{0, spending, 1, 5 * sec, yes, 1, 0, 0},
		{0, spending, 1, 5 * sec, yes, 1, sec, 0},
		{0, spending, 1, 5 * sec, yes, 1, 2 * sec, 0},
		{0, refunding, 1, 0, yes, -1, 0, 0}, // of the first that waits
		{0, spending, 1, 5 * sec, yes, 1, 2 * sec, 0},
		{0, spending, 1, 5 * sec, yes, 1, 3 * sec, 0},
	})
}

// TestThrottleWaitsLongerThanAWindow: what is owed must not be forgiven as that of a lowered limit is.
func TestThrottleWaitsLongerThanAWindow(t *testing.T) {
	var rows []throttleRow
	rows = append(rows, throttleRow{0, spending, 1, mnt, yes, 1, 0, 0})
	for i := range 60 {
		rows = append(rows, throttleRow{0, spending, 1, time.Hour, yes, 1, time.Duration(i+1) * sec, 0})
	}
	rows = append(rows, throttleRow{0, spending, 1, time.Hour, no, 0, 0, 61 * sec}, // a minute is the most
		throttleRow{0, refunding, 1, 0, yes, -1, 0, 0}, throttleRow{30 * sec, spending, 1, mnt, yes, 1, 30 * sec, 0})
	runThrottle(t, bucket(1, sec, 1), rows)
}

func TestThrottleIsForBucketsOnly(t *testing.T) {
	for _, kind := range kinds[1:] {
		var state limit.State
		c := limit.Charge{Limit: of(kind, 1, sec), Cost: 1, MaxWait: mnt}
		spend(t, &state, c, start)
		if d := spend(t, &state, c, start); d.Outcome != limit.Refused || d.Wait != 0 {
			t.Errorf("%v: %+v, want refused at once", kind, d)
		}
	}
}

func TestThrottleOfARequest(t *testing.T) {
	waits := limit.Charge{Key: "a", Limit: bucket(10, sec, 10), Cost: 5, MaxWait: sec}
	spent := limit.Charge{Key: "b", Limit: bucket(10, sec, 10), Cost: 1}
	for _, test := range []struct {
		name    string
		each    bool
		refused bool
		charged int64
		wait    time.Duration
	}{
		{"all pass", false, false, 5, 300 * ms},
		{"another refuses", false, true, 0, 0},
		{"another refuses, and it pays all the same", true, true, 5, 300 * ms},
	} {
		a, b := &limit.State{At: start, Used: 8}, &limit.State{}
		if test.refused {
			*b = limit.State{At: start, Used: 10}
		}
		c := waits
		c.Each = test.each
		decisions := make([]limit.Decision, 2)
		limit.Decide([]*limit.State{a, b}, []limit.Charge{c, spent}, false, start, decisions)
		if d := decisions[0]; d.Outcome != limit.Allowed || d.Charged != test.charged || d.Wait != test.wait || a.Used != 8+test.charged {
			t.Errorf("%s: %+v with %d used, want allowed, %d charged, %v to wait", test.name, d, a.Used, test.charged, test.wait)
		}
	}
}

// TestThrottleAdmitsNoMore: answers that are held until they are due leave at the limit's own rate.
func TestThrottleAdmitsNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := bucket(rapid.Int64Range(1, 20).Draw(t, "count"), sec, rapid.Int64Range(1, 20).Draw(t, "burst"))
		var held limit.State
		var taken []limit.Entry // At is when the answer leaves, Sum the cost
		now, last := int64(start), int64(start)
		for range 40 {
			now += rapid.Int64Range(0, 400_000).Draw(t, "pause")
			c := limit.Charge{Limit: l, Cost: rapid.Int64Range(1, l.Burst).Draw(t, "cost"), MaxWait: time.Duration(rapid.Int64Range(0, 5000).Draw(t, "wait")) * ms}
			before := spend(t, &held, limit.Charge{Limit: l, Cost: c.Cost, Op: peeking}, now)
			d := spend(t, &held, c, now)
			if d.Wait > c.MaxWait || d.Wait != before.RetryAfter && d.Outcome == limit.Allowed {
				t.Fatalf("%+v waits though a peek says %+v", d, before)
			}
			if d.Outcome == limit.Refused {
				continue
			}
			leaves := now + d.Wait.Microseconds()
			if d.Wait > 0 && leaves < last {
				t.Fatalf("an answer is due at %d, before one that came earlier, at %d", leaves, last)
			}
			last = max(last, leaves)
			taken = append(taken, limit.Entry{At: last, Sum: c.Cost})
		}
		for i := range taken {
			sum := int64(0)
			for _, e := range taken[i:] {
				sum += e.Sum
				// A microsecond more, because due times are rounded up.
				if most := l.Burst*sec.Microseconds() + (e.At-taken[i].At+1)*l.Count; sum*sec.Microseconds() > most {
					t.Fatalf("answers left %+v, faster than %+v admits", taken, l)
				}
			}
		}
	})
}
