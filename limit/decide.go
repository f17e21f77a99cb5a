package limit

// turn is a charge while its request is decided: the locals of charge.lua, which describes them.
type turn struct {
	terms
	Counter       // its value as read, and with staged as it is to be stored
	now, coolDown int64
	used, prev    int64 // units taken
	cap, unit     int64 // units
	windowed
	changed        bool // it has to be stored though nothing is taken
	staged         bool // it is to be stored
	log            logView
	outcome        int64 // as charge.lua replies it, but for what only shows
	tokens, wait   int64
	take           int64 // units
	remaining      int64
	resets, passes int64 // µs until full, and until a refused cost could pass
}

// windowed are the locals about windows.
type windowed struct {
	end, tail int64 // µs
	steps     int64 // of the weight of the window before; 0: it weighs nothing
	stored    bool  // the counter has this window's time to live already
}

// deciding is the request that Decide decides.
type deciding struct {
	now       int64
	refused   bool
	charges   []Charge
	counters  []*Counter
	coolings  []*Cooling
	decisions []Decision
	turns     []turn
}

// Decide decides all charges of a request at one instant (now: µs since the epoch), as charge.lua does, and charges all
// of them or none, but for those with Each. With refused the request is refused already, elsewhere.
//
// counters[i] belongs to charges[i].Key, coolings[i] to its PenaltyKey and may be nil without a Penalty, as may
// coolings; equal keys share one pointer. Counters change in place. decisions[i] is overwritten. Refusals are not
// recorded: Cooling.Punish does that where Charge.Punishes. Up to four charges allocate nothing.
func Decide(
	now int64, refused bool, charges []Charge, counters []*Counter, coolings []*Cooling, decisions []Decision,
) {
	var few [4]turn
	r := deciding{now, refused, charges, counters, coolings, decisions, few[:]}
	if len(charges) > len(few) {
		r.turns = make([]turn, len(charges))
	}
	if taken := r.pass(refused, false); r.refused && taken && !refused {
		r.pass(true, true) // again without what a refused request must not take
	}
	for i := range charges {
		r.save(i)
	}
}

// pass decides all charges one after the other, and reports whether one without Each takes. A pass that is dry lets
// those take nothing. In the second one outcomes stay.
func (r *deciding) pass(dry, again bool) (taken bool) {
	for i := range r.charges {
		t := &r.turns[i]
		outcome := t.outcome
		*t = turn{terms: termsOf(&r.charges[i]), now: r.now}
		r.readCounter(i, t)
		t.decide()
		if again {
			t.outcome = outcome
		}
		if dry && !t.each {
			t.tokens, t.take, t.wait = 0, 0, 0
		}
		t.stage()
		r.decisions[i] = t.decision()
		taken = taken || t.take != 0 && !t.each
	}
	r.refused = r.refused || Refuses(r.charges, r.decisions)
	return taken
}

// readCounter gives a turn its counter: as it is, or as an earlier charge of the request has staged it.
func (r *deciding) readCounter(i int, t *turn) {
	t.Counter = *r.counters[i]
	shared := false
	for j := i - 1; j >= 0 && !shared; j-- {
		if before := &r.turns[j]; before.staged && r.counters[j] == r.counters[i] {
			t.Counter, t.log, shared = before.Counter, before.log, true
		}
	}
	if t.penalty > 0 && r.coolings != nil {
		t.coolDown = r.coolings[i].rest(r.now)
	}
	switch {
	case t.algorithm == bucketTerms:
		t.readBucket()
	case t.algorithm != logTerms:
		t.readWindow()
	case shared:
		t.used, t.changed = t.log.used, t.log.moved
		t.cap, t.unit = t.most, 1
	default:
		t.readLog()
	}
}

// decide sets the outcome and what the charge takes.
func (t *turn) decide() {
	left := floorOf(t.cap-t.used, t.unit)
	t.outcome = int64(Allowed)
	switch t.op {
	case Spend, Peek:
		t.spend(left)
	case Refund:
		t.refund()
		return
	case Debit:
		owed := int64(0)
		if t.algorithm == bucketTerms {
			owed = t.debt * t.fine
		}
		t.tokens = max(min(t.cost, floorOf(t.cap+owed-t.used, t.unit)), 0)
	case Lend:
		t.lend(left)
	default:
		t.report()
	}
	t.take = t.tokens * t.unit
}

// spend decides a Spend or a Peek.
func (t *turn) spend(left int64) {
	switch short := t.used - t.cap + product(t.cost, t.unit); {
	case t.coolDown > 0 && t.penalty == 1:
		t.outcome = outcomeCooling
	case t.cost <= left:
		t.tokens = t.cost
	case t.time > 0 && t.cost <= t.most && short <= t.time*t.fine:
		t.tokens, t.wait = t.cost, ceilOf(short, t.fine)
	default:
		t.outcome = int64(Refused)
		if t.each {
			t.tokens = max(left, 0)
		}
	}
	if t.op == Peek {
		t.tokens, t.wait = 0, 0
	}
}

// refund decides a Refund: of a bucket it gives back what has not come back by itself.
func (t *turn) refund() {
	back := min(product(t.cost, t.unit), t.used-product(t.lent+t.older, t.unit))
	if t.time > 0 && t.now >= t.time {
		back = 0
	} else if t.time > 0 && t.algorithm == bucketTerms {
		back = min(back, product(t.time-t.now-1, t.fine)+1)
	}
	t.take = -max(back, 0)
	t.tokens = floorOf(t.take, t.unit)
}

// lend decides a Lend.
func (t *turn) lend(left int64) {
	t.tokens = min(t.cost, max(left, 0)/t.time)
	end := t.end
	if t.algorithm == bucketTerms {
		if t.lent+t.older == 0 {
			t.ends = t.now - t.now%epoch + 2*epoch
		}
		t.lent += t.tokens
		end = t.ends
	}
	if t.wait = end - t.now; t.tokens == 0 {
		t.outcome = int64(Refused)
	}
}

// report takes in what became of tokens on lease. Of a lease that is over all is spent already.
func (t *turn) report() {
	switch t.time {
	case t.ends:
		t.tokens = min(t.cost, t.lent)
		t.lent -= t.tokens
	case t.ends - epoch:
		t.tokens = min(t.cost, t.older)
		t.older -= t.tokens
	}
	t.changed = t.changed || t.tokens > 0
	if t.tokens = -t.tokens; t.op == Spent {
		t.tokens = 0
	}
}

// stage sets what is left and when, and stages what is taken.
func (t *turn) stage() {
	t.used += t.take
	t.remaining = floorOf(t.cap-t.used, t.unit)
	switch t.algorithm {
	case bucketTerms:
		t.waitBucket()
	case slidingTerms:
		t.waitSliding()
	case logTerms:
		t.waitLog()
	default:
		t.resets, t.passes = t.end-t.now, t.end-t.now
	}
	if t.most < 0 && t.resets == 0 {
		t.resets = t.window
	}
	t.waitRefused()
	if t.staged = t.take != 0 || t.changed; t.staged {
		t.store()
	}
}

// waitRefused sets the wait of a charge that is refused.
func (t *turn) waitRefused() {
	switch {
	case t.outcome == outcomeCooling:
		t.wait = t.coolDown
	case t.outcome != int64(Refused):
	case t.cost > t.most:
		t.wait = t.resets
	case t.cost > t.remaining:
		t.wait = t.passes
	default:
		t.wait = 0
	}
}

// store sets the counter as it is to be stored; a log is stored by save.
func (t *turn) store() {
	expires := (t.now + t.resets + 999) / 1000
	switch {
	case t.algorithm == logTerms:
		t.expires = expires
	case t.used == 0 && t.prev == 0:
		t.Counter = Counter{}
	case t.algorithm == bucketTerms:
		t.storeBucket(expires)
	default:
		t.storeWindow()
	}
}

// decision is what the turn replies.
func (t *turn) decision() Decision {
	outcome := t.outcome
	if t.coolDown > 0 && t.penalty == 2 {
		outcome += outcomeShown
	}
	return decisionOf(t.now, outcome, max(t.remaining, 0), t.tokens, t.resets, t.wait)
}

// save stores what the charge has staged, unless a later one has staged the same counter.
func (r *deciding) save(i int) {
	t := &r.turns[i]
	if !t.staged {
		return
	}
	for j := i + 1; j < len(r.charges); j++ {
		if r.turns[j].staged && r.counters[j] == r.counters[i] {
			return
		}
	}
	if t.algorithm == logTerms {
		t.storeLog()
	}
	*r.counters[i] = t.Counter
}
