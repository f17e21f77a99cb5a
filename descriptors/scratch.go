package descriptors

import (
	"github.com/spillway-mesh/spillway/limit"

	"github.com/spillway-mesh/spillway/keys"
)

// scratch is memory that matching uses again and again.
type scratch struct {
	key      []byte
	values   []keys.Value
	nodes    []*node // of each descriptor
	skip     []bool
	replaced []string
	attrs    attributes
	facts    facts
	best     []*candidate // of each group
	looked   int          // candidates that were looked at
	readings readings     // of the path
	held     []held       // rules that win under some reading, where there are several
}

// maxKept is the number of charges above which a Match lets its memory go, so that one huge request does not stay for
// ever.
const maxKept = 1024

// Reset empties the match and keeps its memory.
func (m *Match) Reset() {
	if cap(m.Charges) > maxKept || cap(m.scratch.nodes) > maxKept {
		*m = Match{}
		return
	}
	if cap(m.scratch.readings.path) > maxKeptPath {
		m.scratch.readings = readings{}
	}
	// One by one, because a composite literal would copy the scratch, which is most of it.
	m.Known, m.Block, m.Exempt, m.LongPath, m.BadLimits, m.Gate, m.Domain = false, nil, nil, false, 0, 0, nil
	m.Charges, m.Terms, m.Unlimited = m.Charges[:0], m.Terms[:0], m.Unlimited[:0]
}

// addCharge adds a charge of a term. A reservation is not leased: like other post-paid charges it is made in the store.
func (m *Match) addCharge(t Term, c limit.Charge) {
	c.Class, c.Lease = t.Effect.class, t.Effect.lease
	if t.Effect.Reserve > 0 {
		c.Lease = 0
	}
	if t.Effect.OnFailure == FailLocal {
		c.Share = m.Domain.Name
	}
	m.Terms = append(m.Terms, t)
	m.Charges = append(m.Charges, c)
}

// spends returns what a request does to a limit that reports on descriptor i, or on none (-1): the operation and its
// cost.
func (r *Request) spends(i int, factor int64, postPaid bool) (limit.Op, int64) {
	hits, negative := r.hits(i)
	switch {
	case postPaid && r.Part == Coming:
		return limit.Peek, 1
	case hits == 0 && postPaid:
		return limit.Peek, 1
	case hits == 0:
		return limit.Peek, factor
	case negative:
		return limit.Refund, multiply(hits, factor)
	case postPaid:
		return limit.Debit, multiply(hits, factor)
	}
	return limit.Spend, multiply(hits, factor)
}

// hits returns the hits on descriptor i, or on none (-1), and whether they are given back.
func (r *Request) hits(i int) (hits uint64, negative bool) {
	hits = max(r.Hits, 1)
	if r.Subject != nil && r.Part == Whole {
		hits = 1
	}
	if i < 0 {
		return hits, false
	}
	d := &r.Descriptors[i]
	if d.HitsGiven {
		hits = d.Hits
	}
	return hits, d.NegativeHits
}

// Spends returns how many hits a request spends on a limit that reports on descriptor i, or on none (-1).
func (r *Request) Spends(i int) int64 {
	if i >= len(r.Descriptors) {
		i = -1
	}
	op, hits := r.spends(i, 1, false)
	if op != limit.Spend {
		return 0
	}
	return hits
}

// reserving makes a reservation of a peek, where a post-paid limit has one: the request comes before its cost is known.
func reserving(reserve int64, op limit.Op, cost int64) (limit.Op, int64) {
	if reserve > 0 && op == limit.Peek {
		return limit.Spend, reserve
	}
	return op, cost
}

// multiply returns hits × factor, at most limit.MaxCost.
func multiply(hits uint64, factor int64) int64 {
	if hits > uint64(limit.MaxCost)/uint64(factor) {
		return limit.MaxCost
	}
	return int64(hits) * factor
}
