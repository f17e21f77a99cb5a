package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// clockRows are clocks of the server that jump, through the time that only tests give to the script.
var clockRows = []row{
	{id: "X26a", fault: "the clock goes back 1 h", full: clockRun, run: jumping(func(int) time.Duration {
		return -time.Hour
	})},
	{id: "X26b", fault: "the clock goes on 1 h", full: clockRun, run: jumping(func(int) time.Duration {
		return time.Hour
	})},
	{id: "X26c", fault: "the clock goes on 10 years", full: clockRun, run: jumping(func(int) time.Duration {
		return 3650 * 24 * time.Hour
	})},
	{id: "X26d", fault: "the clock flaps by 5 s", full: clockRun, run: jumping(func(step int) time.Duration {
		return time.Duration(10*(step%2)-5) * time.Second
	})},
}

const (
	clockCount  = 10
	clockWindow = time.Minute
	clockStep   = 500 * time.Millisecond
	clockJump   = 130 // step of the jump
	clockSteps  = 500
	clockRun    = clockSteps * clockStep // on the clock that only the script sees
)

// jumping lets a client spend all it can for four minutes, on a clock that is wrong by some time from a moment on, and
// compares with the same client on a clock that is right.
func jumping(wrong func(step int) time.Duration) func(x *trial) {
	return func(x *trial) {
		x.startRedis()
		for kind := limit.TokenBucket; kind <= limit.SlidingLog; kind++ {
			right := x.spendAll(kind, func(int) time.Duration { return 0 })
			got := x.spendAll(kind, func(step int) time.Duration {
				if step < clockJump {
					return 0
				}
				return wrong(step)
			})
			x.note("%s: %+d admitted, locked out %v, on a right clock %v", kind, got.admitted-right.admitted,
				got.longest, right.longest)
			if right.admitted > 6*clockCount {
				x.fails("%s admits %d on a right clock", kind, right.admitted)
			}
			if got.admitted > right.admitted+clockCount {
				x.fails("%s admits %d, %d on a right clock: more than a burst of %d", kind, got.admitted,
					right.admitted, clockCount)
			}
			// A bucket owes a minute more than all at most, and the next token comes after that.
			if most := right.longest + clockWindow + clockWindow/clockCount; got.longest > most {
				x.fails("%s locks out for %v, %v on a right clock: at most %v", kind, got.longest, right.longest, most)
			}
		}
	}
}

// spent is what a greedy client got.
type spent struct {
	admitted int
	longest  time.Duration // between two admitted charges
}

// spendAll asks every half second, twice, of a fresh counter. Off is how wrong the clock is at a step.
func (x *trial) spendAll(kind limit.Algorithm, off func(step int) time.Duration) spent {
	x.Helper()
	x.do("FLUSHALL")
	// Counters end at an instant of the server's own clock, so all happens in its future.
	start := time.Now().Truncate(clockWindow).Add(24*time.Hour + clockWindow/3)
	charges := []limit.Charge{{Key: "rl1:{clock}", Cost: 1, Limit: limit.Limit{Algorithm: kind, Count: clockCount,
		Burst: clockCount, Window: clockWindow}}}
	var s spent
	var last time.Duration
	for step := range clockSteps {
		passed := time.Duration(step) * clockStep
		now := start.Add(passed + off(step)).UnixMicro()
		for range 2 {
			d, err := x.decideAt(charges, now)
			switch {
			case err != nil:
				x.Fatalf("%s at step %d: %v", kind, step, err)
			case d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining < 0 ||
				(d.Outcome == limit.Refused) != (d.RetryAfter > 0):
				x.fails("%s at step %d: %+v", kind, step, d)
			case d.Outcome == limit.Allowed:
				s.admitted++
				s.longest = max(s.longest, passed-last)
				last = passed
			}
		}
	}
	s.longest = max(s.longest, clockRun-last)
	return s
}

// decideAt runs the script at a time of the test's choice.
func (x *trial) decideAt(charges []limit.Charge, now int64) (limit.Decision, error) {
	script := limit.ScriptOf(charges)
	keys, words, _ := script.Append(nil, nil, charges, false)
	args := []any{now}
	for _, word := range words {
		args = append(args, word)
	}
	reply, err := x.admin.Eval(context.Background(), script.Text, keys, args...).Int64Slice()
	if err != nil {
		return limit.Decision{}, fmt.Errorf("run the script: %w", err)
	}
	decisions := make([]limit.Decision, 1)
	err = script.Decide(reply, charges, decisions)
	return decisions[0], err
}
