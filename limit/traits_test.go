package limit_test

import (
	"testing"

	"github.com/spillway-mesh/spillway/limit"
)

// TestTraitsAreWhatTheArithmeticDoes reads each trait off decisions: a counter of 8 per 8 s is spent 6 s into a window.
func TestTraitsAreWhatTheArithmeticDoes(t *testing.T) {
	const spent = start + 6e6
	for a := limit.TokenBucket; a <= limit.SlidingLog; a++ {
		var state limit.State
		l := of(a, 8, 8*sec)
		spend(t, &state, limit.Charge{Limit: l, Cost: 8}, spent)
		aligned, logged := state.At/1e6 == start/1e6, len(state.Log) > 0
		left := func(after int64) int64 {
			return spend(t, &state, limit.Charge{Limit: l, Op: limit.Peek}, spent+after).Remaining
		}
		afterOne, afterTwo := left(1e6), left(2e6)
		waits := spend(t, &state, limit.Charge{Limit: l, Cost: 1, MaxWait: limit.LongestWait}, spent).Wait > 0
		var fresh limit.State
		larger, calendar := l, l
		larger.Burst, calendar.Calendar = 9, &limit.Calendar{}

		for _, trait := range []struct {
			name      string
			got, want bool
		}{
			{"HasBurst", a.HasBurst(), spend(t, &fresh, limit.Charge{Limit: larger, Cost: 9}, spent).Outcome == limit.Allowed},
			{"Fills", a.Fills(), afterOne == 1},
			{"Lends", a.Lends(), waits},
			{"Aligned", a.Aligned(), aligned},
			{"EndsAtOnce", a.EndsAtOnce(), afterTwo == 8},
			{"HasCalendar", a.HasCalendar(), calendar.Validate() == nil},
			{"KeepsLog", a.KeepsLog(), logged},
		} {
			if trait.got != trait.want {
				t.Errorf("%v: %s is %t, and the decisions show %t", a, trait.name, trait.got, trait.want)
			}
		}
	}
}
