package limit

import "time"

// rate holds the numbers of a limit as the algorithms use them.
type rate struct {
	count, window, burst int64     // tokens, microseconds, tokens
	calendar             *Calendar // nil: none
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
	if !l.Algorithm.known() || r.count < 0 || r.burst < 0 || r.window < 1 {
		return rate{window: max(r.window, 1)}
	}
	r = rate{count: min(r.count, MaxCount), window: min(r.window, MaxWindow.Microseconds()), burst: min(r.burst, MaxCount)}
	if l.Algorithm.HasCalendar() {
		r.calendar = l.Calendar
	}
	return r
}

// Decide decides all charges of a request at one instant (now: microseconds since the epoch) and charges all of them or
// none, but for those with Each. It is the pure twin of spend.lua.
//
// states[i] belongs to charges[i].Key. Charges with equal keys share one pointer and have the same algorithm; each sees
// what those before it took. States change in place, and only where something was charged (or where a clock set back by
// more than a window asks for it). decisions[i] is overwritten. With refused the request is refused already, elsewhere,
// and only charges with Each take.
//
// Remaining, ResetAfter and RetryAfter are those after the whole request. Up to four charges allocate nothing. Penalties are
// not looked at: Judge does that.
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
	q := request{states: states, charges: charges, refused: refused, now: now, decisions: decisions, tallies: few[:], slots: fewSlots[:]}
	if n := len(charges); n > len(few) {
		q.tallies, q.slots = make([]tally, n), make([]int, n)
	}
	q.decide()
	q.finish()
}

// request is the charges of one request while they are decided.
type request struct {
	states    []*State
	charges   []Charge
	refused   bool
	now       int64
	decisions []Decision
	tallies   []tally
	slots     []int   // charges[i] works on tallies[slots[i]]
	rests     []int64 // of cool-downs, by charge; nil without penalties
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

// decide tries all charges one after the other. If that refuses the request it starts again, and only charges with Each
// take; what each limit said stays.
func (q *request) decide() {
	assign(q.states[:len(q.charges)], q.slots)
	q.open()
	for i := range q.charges {
		q.step(i, false)
	}
	if !q.refused && !Refuses(q.charges, q.decisions) {
		return
	}
	q.open()
	for i := range q.charges {
		d := &q.decisions[i]
		said := d.Outcome
		q.step(i, !q.charges[i].Each)
		d.Outcome = said
		if said == Refused {
			d.Wait = 0
		}
	}
}

func (q *request) open() {
	for i := range q.charges {
		if q.slots[i] == i {
			q.tallies[i] = open(q.states[i])
		}
	}
}

// step decides one charge. One that a cool-down refuses does not get to its counter.
func (q *request) step(i int, dry bool) {
	c := &q.charges[i]
	if q.rests != nil && q.rests[i] > 0 && !c.DryRun() {
		q.decisions[i] = Decision{Outcome: Refused}
		return
	}
	t := &q.tallies[q.slots[i]]
	*t = step(*t, c, dry, q.now, &q.decisions[i])
}

// finish reports what is left after all charges, and stores what they changed.
func (q *request) finish() {
	for i := range q.charges {
		t := &q.tallies[q.slots[i]]
		*t = report(*t, &q.charges[i], q.now, &q.decisions[i])
	}
	for i := range q.charges {
		if q.slots[i] == i {
			q.tallies[i].save(q.states[i])
		}
	}
}

// Refuses reports whether decisions refuse the request: by any enforced charge, or by all its quotas together.
func Refuses(charges []Charge, decisions []Decision) bool {
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
	var n, wait int64
	d.Outcome, n = demand(c, l, a.left(t, l, now), now)
	if d.Outcome == Refused && c.waits() {
		d.Outcome, n, wait = reserve(t, c, l, n, now)
	}
	if dry || n == 0 {
		return t
	}
	d.Wait = time.Duration(wait) * time.Microsecond
	t, d.Charged = a.take(t, l, n, now)
	t.changed = t.changed || d.Charged != 0
	return t
}

// demand says what a charge gets and how much it takes when that much is left.
func demand(c *Charge, l rate, left, now int64) (Outcome, int64) {
	cost := c.cost()
	switch c.Op {
	case Refund:
		return Allowed, -min(cost, c.returnable(l, now))
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

// returnable is how much a refund can give back at most before its end. What a bucket has earned since is not given again, so the
// less time it has until it is full anyway, the less that is; a part of a token counts as one.
func (c *Charge) returnable(l rate, now int64) int64 {
	switch {
	case c.Until == 0:
		return MaxCost
	case now > c.Until:
		return 0
	case !c.Limit.Algorithm.Fills():
		return MaxCost
	}
	tokens, part := share(c.Until-now, l.count, l.window)
	if part > 0 {
		tokens++
	}
	return tokens
}

// RefundUntil is until when what a charge took can be given back without harm: while its window lasts, because in the next
// one it would undo the charges of others; from a bucket and a log until time has given it back, and all that others had taken then.
func RefundUntil(l Limit, d *Decision) int64 {
	if !l.Algorithm.Aligned() || l.Calendar != nil {
		return d.At + d.ResetAfter.Microseconds() - 1
	}
	window := rateOf(&l).window
	return d.At - d.At%window + window - 1
}

// waits reports whether tokens may be taken in advance, or for a peek that they could be.
func (c *Charge) waits() bool {
	return c.MaxWait > 0 && (c.Op == Spend || c.Op == Peek) && c.Limit.Algorithm.Lends()
}

// reserve takes tokens in advance if they are due within the charge's longest wait. If not, a refusal takes n. A peek takes
// nothing, and so its answer does not wait.
func reserve(t tally, c *Charge, l rate, n, now int64) (Outcome, int64, int64) {
	wait, ok := bucketDue(t, l, c.cost(), c.maxWait(), now)
	if !ok {
		return Refused, n, 0
	}
	if c.Op == Peek {
		return Allowed, 0, 0
	}
	return Allowed, c.cost(), wait
}

// maxWait is MaxWait within its bounds, in microseconds.
func (c *Charge) maxWait() int64 {
	return min(c.MaxWait, LongestWait).Microseconds()
}

// cost is Cost within its bounds.
func (c *Charge) cost() int64 {
	return min(max(c.Cost, 0), MaxCost)
}

// report sets what is left after the request.
func report(t tally, c *Charge, now int64, d *Decision) tally {
	d.At = now
	l := rateOf(&c.Limit)
	if l.count == 0 {
		d.ResetAfter = time.Duration(whole(c.Limit.Algorithm, l, now)) * time.Microsecond
		if d.Outcome == Refused {
			d.RetryAfter = d.ResetAfter
		}
		return t
	}
	t = algorithms[c.Limit.Algorithm].advance(t, l, now)
	rest(t, c.Limit.Algorithm, l, c.cost(), now, d)
	return t
}

// whole is the time until a limit of 0 would be full, in microseconds: until its window ends, or as long as that is.
func whole(a Algorithm, l rate, now int64) int64 {
	if a != FixedWindow {
		return l.window
	}
	return fixedWindow.reset(fixedWindow.advance(tally{}, l, now), l, now)
}

// rest sets what an advanced tally says after a charge of that cost.
func rest(t tally, algorithm Algorithm, l rate, cost, now int64, d *Decision) {
	a := &algorithms[algorithm]
	d.Remaining = max(a.left(t, l, now), 0)
	d.ResetAfter = time.Duration(a.reset(t, l, now)) * time.Microsecond
	if d.Outcome == Refused {
		d.RetryAfter = time.Duration(a.wait(t, l, cost, now)) * time.Microsecond
	}
}
