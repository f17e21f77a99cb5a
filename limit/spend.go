package limit

import "time"

// rate holds the numbers of a limit as the algorithms use them.
type rate struct {
	count, window, burst int64 // tokens, microseconds, tokens
}

// algorithm is one way to count. All functions but advance take a tally that was advanced to the same limit and now.
type algorithm struct {
	advance func(t tally, l rate, now int64) tally             // applies the time that has passed
	left    func(t tally, l rate, now int64) int64             // tokens that could be taken; negative in debt
	take    func(t tally, l rate, n, now int64) (tally, int64) // takes n tokens, or gives -n back but not more than are used
	wait    func(t tally, l rate, n, now int64) int64          // microseconds until n fits; until reset if it never can
	reset   func(t tally, l rate, now int64) int64             // microseconds until full, or until the window ends
}

var algorithms = [...]algorithm{TokenBucket: tokenBucket, SlidingWindow: slidingWindow, FixedWindow: fixedWindow, SlidingLog: slidingLog}

// rateOf brings a limit into bounds. One that Validate refuses gets no promise but never admits without end: without an
// algorithm or a window it counts as a limit of 0.
func rateOf(l *Limit) rate {
	r := rate{count: l.Count, window: l.Window.Microseconds(), burst: l.Burst}
	if l.Algorithm < TokenBucket || l.Algorithm > SlidingLog || r.count < 0 || r.burst < 0 || r.window < 1 {
		return rate{window: max(r.window, 1)}
	}
	return rate{count: min(r.count, MaxCount), window: min(r.window, MaxWindow.Microseconds()), burst: min(r.burst, MaxCount)}
}

// Decide decides all charges of a request at one instant (now: microseconds since the epoch) and charges all of them or
// none, but for those with Each. It is the pure twin of spend.lua.
//
// states[i] belongs to charges[i].Key. Charges with equal keys share one pointer and have the same algorithm; each sees
// what those before it took. States change in place, and only where something was charged (or where a clock set back by
// more than a window asks for it). decisions[i] is overwritten. With refused the request is refused already, by someone
// else, and only charges with Each take.
//
// Remaining, ResetAfter and RetryAfter are those after the whole request. Up to four charges allocate nothing.
func Decide(states []*State, charges []Charge, refused bool, now int64, decisions []Decision) {
	if len(charges) == 1 {
		c, d := &charges[0], &decisions[0]
		t := step(open(states[0]), c, refused && !c.Each, now, d)
		t = report(t, c, now, d)
		t.save(states[0])
		return
	}
	var few [4]tally
	var fewSlots [4]int
	tallies, slots := few[:], fewSlots[:]
	if n := len(charges); n > len(few) {
		tallies, slots = make([]tally, n), make([]int, n)
	}
	assign(states[:len(charges)], slots)
	decideAll(states, charges, refused, now, decisions, tallies, slots)
}

// assign gives each charge the slot of the first charge that shares its state.
func assign(states []*State, slots []int) {
	if len(states) <= 16 {
		for i, s := range states {
			slots[i] = i
			for j := range i {
				if states[j] == s {
					slots[i] = j
					break
				}
			}
		}
		return
	}
	seen := make(map[*State]int, len(states))
	for i, s := range states {
		j, shared := seen[s]
		if !shared {
			j, seen[s] = i, i
		}
		slots[i] = j
	}
}

// decideAll tries all charges one after the other. If that refuses the request it starts again, and only charges with
// Each take; what each limit said stays.
func decideAll(states []*State, charges []Charge, refused bool, now int64, decisions []Decision, tallies []tally, slots []int) {
	openAll(states, tallies, slots, len(charges))
	for i := range charges {
		t := &tallies[slots[i]]
		*t = step(*t, &charges[i], false, now, &decisions[i])
	}
	if refused || refuses(charges, decisions) {
		openAll(states, tallies, slots, len(charges))
		for i := range charges {
			t, d := &tallies[slots[i]], &decisions[i]
			said := d.Outcome
			*t = step(*t, &charges[i], !charges[i].Each, now, d)
			d.Outcome = said
		}
	}
	for i := range charges {
		t := &tallies[slots[i]]
		*t = report(*t, &charges[i], now, &decisions[i])
	}
	for i := range charges {
		if slots[i] == i {
			tallies[i].save(states[i])
		}
	}
}

func openAll(states []*State, tallies []tally, slots []int, n int) {
	for i := range n {
		if slots[i] == i {
			tallies[i] = open(states[i])
		}
	}
}

// refuses says whether the request is refused: by any enforced charge, or by all its quotas together.
func refuses(charges []Charge, decisions []Decision) bool {
	quotas, open := false, false
	for i := range charges {
		refused := decisions[i].Outcome == Refused
		switch charges[i].Mode {
		case Enforced:
			if refused {
				return true
			}
		case Quota:
			quotas = true
			open = open || !refused
		}
	}
	return quotas && !open
}

// step decides one charge on its own and takes what it takes, nothing if dry. It sets Outcome and Charged.
func step(t tally, c *Charge, dry bool, now int64, d *Decision) tally {
	*d = Decision{Outcome: Allowed}
	l := rateOf(&c.Limit)
	if l.count == 0 {
		if c.Op == Spend || c.Op == Peek {
			d.Outcome = Refused
		}
		return t
	}
	a := &algorithms[c.Limit.Algorithm]
	t = a.advance(t, l, now)
	var n int64
	d.Outcome, n = demand(c, l, a.left(t, l, now))
	if dry || n == 0 {
		return t
	}
	t, d.Charged = a.take(t, l, n, now)
	t.changed = t.changed || d.Charged != 0
	return t
}

// demand says what a charge gets and how much it takes when that much is left.
func demand(c *Charge, l rate, left int64) (Outcome, int64) {
	cost := c.cost()
	switch c.Op {
	case Refund:
		return Allowed, -cost
	case Debit:
		return Allowed, max(min(cost, left+l.count), 0)
	case Peek:
		if cost > left {
			return Refused, 0
		}
		return Allowed, 0
	}
	switch {
	case cost <= left:
		return Allowed, cost
	case c.Each:
		return Refused, max(left, 0)
	}
	return Refused, 0
}

// cost is Cost within its bounds.
func (c *Charge) cost() int64 {
	return min(max(c.Cost, 0), MaxCost)
}

// report sets what is left after the request.
func report(t tally, c *Charge, now int64, d *Decision) tally {
	l := rateOf(&c.Limit)
	reset, retry := l.window, l.window
	if l.count > 0 {
		a := &algorithms[c.Limit.Algorithm]
		t = a.advance(t, l, now)
		d.Remaining = max(a.left(t, l, now), 0)
		reset = a.reset(t, l, now)
		if d.Outcome == Refused {
			retry = a.wait(t, l, c.cost(), now)
		}
	}
	d.ResetAfter = time.Duration(reset) * time.Microsecond
	if d.Outcome == Refused {
		d.RetryAfter = time.Duration(retry) * time.Microsecond
	}
	return t
}
