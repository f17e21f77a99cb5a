package limit

import (
	"slices"
	"sort"
	"time"
)

// A penalty keeps, for one client, the instants of refusals that may still lead to a cool-down, and when its last
// cool-downs end or ended. A cool-down that runs is one whose end lies ahead.

// Bounds of a Penalty. What lies beyond them is taken for the bound.
const (
	MaxThreshold   = 1000           // refusals; each that counts is stored
	MaxMultipliers = 16             // further ones are not looked at; no multipliers are one of 1
	MaxCoolDown    = 24 * time.Hour // its multiplier included
)

// Record is what a store keeps of one client under one penalty. The zero value is a client that was never refused. Times
// are microseconds since the epoch, oldest first.
type Record struct {
	Ends     []int64 // of cool-downs, as many as there are multipliers at most; only the last may lie ahead
	Refusals []int64 // that count towards the next cool-down, fewer than Threshold
}

// Empty says that nothing is recorded.
func (r *Record) Empty() bool {
	return len(r.Ends) == 0 && len(r.Refusals) == 0
}

// Expires is the instant, in microseconds since the epoch, from which on nothing in the record matters; 0 if that is so
// now.
func (r *Record) Expires(p *Penalty, now int64) int64 {
	if r.Empty() {
		return 0
	}
	return expiry(max(lastOf(r.Ends), lastOf(r.Refusals))+policyOf(p).window, now)
}

// policy holds the numbers of a penalty as the arithmetic uses them.
type policy struct {
	threshold, window int64 // refusals, microseconds
	coolDown          int64 // microseconds
	multipliers       []int64
}

var once = []int64{1}

func policyOf(p *Penalty) policy {
	o := policy{
		threshold:   min(max(p.Threshold, 1), MaxThreshold),
		window:      max(min(p.Window, MaxWindow).Microseconds(), 1),
		coolDown:    max(min(p.CoolDown, MaxCoolDown).Microseconds(), 1),
		multipliers: p.Multipliers,
	}
	if len(o.multipliers) == 0 {
		o.multipliers = once
	}
	o.multipliers = o.multipliers[:min(len(o.multipliers), MaxMultipliers)]
	return o
}

// length is how long the cool-down lasts that follows k others, in microseconds.
func (o *policy) length(k int) int64 {
	n, _ := share(o.coolDown, max(o.multipliers[min(k, len(o.multipliers)-1)], 1), 1)
	return min(n, MaxCoolDown.Microseconds())
}

func (o *policy) longest() int64 {
	longest := int64(0)
	for k := range o.multipliers {
		longest = max(longest, o.length(k))
	}
	return longest
}

// rest is how long the cool-down still lasts, 0 if none runs. What lies further ahead than this penalty can reach (the
// clock was set back, or the penalty became milder) is moved within it.
func (r *Record) rest(o *policy, now int64) int64 {
	if end := now + o.longest(); lastOf(r.Ends) > end {
		for i := range r.Ends {
			r.Ends[i] = min(r.Ends[i], end)
		}
	}
	if newest := lastOf(r.Refusals); newest > now+o.window {
		r.Refusals = append(r.Refusals[:0], r.Refusals[after(r.Refusals, newest-o.window):]...)
		for i := range r.Refusals {
			r.Refusals[i] = now
		}
	}
	return max(lastOf(r.Ends)-now, 0)
}

// refuse records a refusal and returns the length of the cool-down that it starts, 0 if it starts none. Time does not run
// before the newest refusal.
func (r *Record) refuse(o *policy, now int64) int64 {
	at := max(now, lastOf(r.Refusals))
	r.Refusals = append(slices.Delete(r.Refusals, 0, after(r.Refusals, at-o.window)), at)
	r.Ends = slices.Delete(r.Ends, 0, after(r.Ends, at-o.window))
	if int64(len(r.Refusals)) < o.threshold {
		return 0
	}
	length := o.length(len(r.Ends))
	r.Ends = append(slices.Delete(r.Ends, 0, max(len(r.Ends)+1-len(o.multipliers), 0)), now+length)
	r.Refusals = r.Refusals[:0]
	return length
}

// after is the index of the first instant after the edge.
func after(instants []int64, edge int64) int {
	return sort.Search(len(instants), func(i int) bool { return instants[i] > edge })
}

func lastOf(instants []int64) int64 {
	if len(instants) == 0 {
		return 0
	}
	return instants[len(instants)-1]
}

// Penalizes says whether a cool-down has a say about the charge: not about a refund or a debit, which are never refused.
func (c *Charge) Penalizes() bool {
	return c.Penalty != nil && (c.Op == Spend || c.Op == Peek)
}

// DryRun says that a cool-down shows in the decision but does not refuse, for a charge with a Penalty.
func (c *Charge) DryRun() bool {
	return c.Penalty.DryRun || c.Mode == Shadow
}

// Judge is Decide with penalties. records[i] belongs to charges[i].PenaltyKey, and may be nil where the charge has no
// Penalty; charges with equal keys share one pointer. Records change in place.
//
// A charge in a cool-down is Refused, Penalized and takes nothing, and RetryAfter is the rest. A Spend that its own counter
// refuses is recorded, also where the request as a whole charges nothing; several that share a record are one refusal.
// The one that starts a cool-down waits for it too: RetryAfter is the longer of both.
func Judge(states []*State, records []*Record, charges []Charge, refused bool, now int64, decisions []Decision) {
	var few [4]tally
	var fewSlots [4]int
	var fewRests [4]int64
	q := request{states: states, charges: charges, refused: refused, now: now, decisions: decisions, tallies: few[:], slots: fewSlots[:], rests: fewRests[:]}
	if n := len(charges); n > len(few) {
		q.tallies, q.slots, q.rests = make([]tally, n), make([]int, n), make([]int64, n)
	}
	for i := range charges {
		if charges[i].Penalizes() {
			o := policyOf(charges[i].Penalty)
			q.rests[i] = records[i].rest(&o, now)
		}
	}
	q.decide()
	q.finish()
	for i := range charges {
		if charges[i].Penalizes() {
			q.punish(records, i)
		}
	}
}

// punish records the refusal of a charge, and says in its decision what a cool-down means for it.
func (q *request) punish(records []*Record, i int) {
	c, d := &q.charges[i], &q.decisions[i]
	wait := q.rests[i]
	d.Penalized = wait > 0
	if d.Outcome != Refused {
		return
	}
	if wait == 0 && c.Op == Spend {
		wait = max(q.recorded(records, i), d.RetryAfter.Microseconds())
	}
	if wait > 0 && !c.DryRun() {
		d.RetryAfter = time.Duration(wait) * time.Microsecond
	}
}

// recorded returns the length of the cool-down that the refusal of a charge starts, 0 if none. It is recorded with the
// first such charge of the request that has the record.
func (q *request) recorded(records []*Record, i int) int64 {
	o := policyOf(q.charges[i].Penalty)
	for j := range i {
		c := &q.charges[j]
		if records[j] == records[i] && c.Penalizes() && c.Op == Spend && q.rests[j] == 0 && q.decisions[j].Outcome == Refused {
			return max(lastOf(records[i].Ends)-q.now, 0) // it ran for none of them before
		}
	}
	return records[i].refuse(&o, q.now)
}
