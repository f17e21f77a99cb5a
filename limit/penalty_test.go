package limit

import (
	"testing"
	"time"
)

func TestPunishes(t *testing.T) {
	refused := Decision{Outcome: Refused, RetryAfter: time.Hour}
	cooling := Decision{Outcome: Refused, RetryAfter: 40 * sec, Penalized: true}
	late, known := cooling, cooling
	late.RetryAfter, known.RetryAfter, known.Cached = time.Hour, time.Hour, true
	for name, row := range map[string]struct {
		change   func(*Charge)
		decision Decision
		want     bool
	}{
		"refused":                   {nil, refused, true},
		"allowed":                   {nil, Decision{Outcome: Allowed}, false},
		"undecided":                 {nil, Decision{}, false},
		"a peek":                    {func(c *Charge) { c.Op = Peek }, refused, false},
		"without a penalty":         {func(c *Charge) { c.Penalty = nil }, refused, false},
		"by a cool-down":            {nil, cooling, false},
		"by one that is too long":   {nil, late, true},
		"beside one of a dry run":   {shadow, late, false},
		"by a known cool-down":      {nil, known, false},
		"a shadow, by its counter":  {func(c *Charge) { c.Mode = Shadow }, refused, true},
		"with charges of the trees": {each, refused, true},
	} {
		c := offender()
		if row.change != nil {
			row.change(c)
		}
		if got := c.Punishes(row.decision); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
}

func TestPunished(t *testing.T) {
	for name, row := range map[string]struct {
		dry         bool
		before      Decision
		rest, retry time.Duration
	}{
		"the counter's is longer":   {false, Decision{RetryAfter: mnt}, 10 * sec, mnt},
		"the cool-down is longer":   {false, Decision{RetryAfter: sec}, 10 * sec, 10 * sec},
		"none starts":               {false, Decision{RetryAfter: sec}, 0, sec},
		"a dry run":                 {true, Decision{RetryAfter: sec}, 10 * sec, sec},
		"one that is cut to length": {false, Decision{RetryAfter: time.Hour, Penalized: true}, 40 * sec, 40 * sec},
	} {
		c, d := offender(), row.before
		c.Penalty.DryRun = row.dry
		d.Punished(c, row.rest.Microseconds())
		if d.RetryAfter != row.retry {
			t.Errorf("%s: retry after %v, want %v", name, d.RetryAfter, row.retry)
		}
	}
}

// coolDown refuses the offender until a cool-down starts, on both twins.
func coolDown(t *testing.T, l lua, m *memory, c *Charge, now int64) {
	t.Helper()
	for range c.Penalty.Threshold {
		redis, twin := l.punish(now, c), m.cooling(c.PenaltyKey).Punish(c.Penalty, now)
		if redis != twin {
			t.Fatalf("Redis %d, Go %d", redis, twin)
		}
	}
}

// TestCoolDownRefuses: a cool-down refuses spends and peeks, of Each too, but no refund; of a dry run and a shadow it
// only shows.
func TestCoolDownRefuses(t *testing.T) {
	t.Parallel()
	l, m := startLua(t), newMemory()
	c := offender()
	c.Limit = fixed(9, time.Hour)
	coolDown(t, l, m, c, future)
	dry := *c.Penalty
	dry.DryRun = true
	for name, row := range map[string]struct {
		change    func(*Charge)
		outcome   Outcome
		penalized bool
		charged   int64
	}{
		"a spend":       {nil, Refused, true, 0},
		"a peek":        {func(c *Charge) { c.Op = Peek }, Refused, true, 0},
		"of each":       {each, Refused, true, 0},
		"a refund":      {func(c *Charge) { c.Op = Refund }, Allowed, false, 0},
		"a shadow":      {shadow, Allowed, true, 1},
		"a dry run":     {func(c *Charge) { c.Penalty = &dry }, Allowed, true, 1},
		"a spent quota": {quota, Refused, true, 0},
	} {
		one := *c
		one.Key = name
		if row.change != nil {
			row.change(&one)
		}
		now := int64(future + 4_000_000)
		got, twin := l.charge(now, one)[0], m.decide(now, order{charges: []Charge{one}})[0]
		if got != twin || got.Outcome != row.outcome || got.Penalized != row.penalized || got.Charged != row.charged {
			t.Errorf("%s: Redis %+v, Go %+v", name, got, twin)
		}
		if got.Outcome == Refused && got.RetryAfter != 6*sec {
			t.Errorf("%s: retry after %v, want the rest of the cool-down", name, got.RetryAfter)
		}
	}
}

// TestCoolDownOfAClockThatIsSetBack: it is cut to the longest of its penalty by the next refusal.
func TestCoolDownOfAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	l, m, c := startLua(t), newMemory(), offender()
	coolDown(t, l, m, c, future)
	now := int64(future) - time.Hour.Microseconds()
	got, twin := l.charge(now, *c)[0], m.decide(now, order{charges: []Charge{*c}})[0]
	if got != twin || !c.Punishes(got) {
		t.Fatalf("Redis %+v, Go %+v: it must be recorded", got, twin)
	}
	rest, other := l.punish(now, c), m.cooling(c.PenaltyKey).Punish(c.Penalty, now)
	if rest != 40_000_000 || other != rest {
		t.Errorf("it lasts for %dµs, in Go for %dµs, want 40 s", rest, other)
	}
	if got := l.charge(now, *c)[0]; c.Punishes(got) || got.RetryAfter != 40*sec {
		t.Errorf("after that: %+v", got)
	}
}

// TestForeignCoolDowns: a value that is not a list of cool-downs does not refuse, and fails the call that records.
func TestForeignCoolDowns(t *testing.T) {
	t.Parallel()
	l, c := startLua(t), offender()
	c.Limit = fixed(9, time.Hour)
	l.client.Set(t.Context(), PunishKeys(c)[1], "abc", 0)
	if got := l.charge(0, *c)[0]; got.Outcome != Allowed || got.Penalized {
		t.Errorf("%+v", got)
	}
	_, err := l.eval(Punish, 0, PunishKeys(c), PunishArguments(c))
	checkFailure(t, "a foreign list", err, []string{"WRONGTYPE"})
}

// TestPenaltyBounds: what lies beyond the bounds is taken for the bound.
func TestPenaltyBounds(t *testing.T) {
	for name, row := range map[string]struct {
		penalty Penalty
		want    []string
	}{
		"zero": {Penalty{}, []string{"1", "1", "1"}},
		"negative": {
			Penalty{Threshold: -1, Window: -sec, CoolDown: -sec, Multipliers: []int64{-3}}, []string{"1", "1", "1"},
		},
		"large": {
			Penalty{Threshold: 1 << 60, Window: 1 << 62, CoolDown: 20 * time.Hour, Multipliers: []int64{1, 2, 1 << 62}},
			[]string{"1000", "315360000000000", "72000000000", "86400000000", "86400000000"},
		},
		"many": {Penalty{Threshold: 2, Window: sec, CoolDown: ms, Multipliers: make([]int64, 40)}, nil},
	} {
		got := PunishArguments(&Charge{Penalty: &row.penalty})
		if row.want == nil {
			if len(got) != 2+MaxMultipliers {
				t.Errorf("%s: %q", name, got)
			}
			continue
		}
		for i := range row.want {
			if len(got) != len(row.want) || got[i] != row.want[i] {
				t.Errorf("%s: %q, want %q", name, got, row.want)
				break
			}
		}
	}
}
