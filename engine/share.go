package engine

import (
	"context"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// live is how many sidecars share the limits of a domain while the store is away, as far as it is known; of an empty domain, how many
// sidecars share the store.
func (e *Engine) live(domain string) int64 {
	if e.cfg.Live == nil {
		return 1
	}
	return int64(max(e.cfg.Live(domain), 1))
}

// liveOf is the number of sidecars that share the limits that a request met.
func (e *Engine) liveOf(v *Verdict) int64 { return e.live(v.Match.Domain.Name) }

// shareOf is the part of a limit that one of live sidecars may hand out on its own: rounded down, so that all parts
// together are no more than the limit, but at least 1 of what is not 0.
func shareOf(l limit.Limit, live int64) limit.Limit {
	if live <= 1 {
		return l
	}
	l.Count, l.Burst = partOf(l.Count, live), partOf(l.Burst, live)
	// The count may have lost more to rounding than the burst, which would take longer to fill than a limit may.
	if l.Algorithm.Fills() && l.Count > 0 {
		fills := float64(l.Count) * (float64(limit.MaxFill) / float64(l.Window))
		if float64(l.Burst) > fills {
			l.Burst = int64(fills)
		}
	}
	return l
}

func partOf(n, live int64) int64 {
	if n < 1 {
		return n
	}
	return max(n/live, 1)
}

// mirror counts in the fallback what the store has charged for rules that it would decide while the store is away: so its
// share begins with what this sidecar has admitted already. What the store decides by tokens that it holds it tells in sums.
func (e *Engine) mirror(ctx context.Context, v *Verdict) {
	if e.cfg.Fallback == nil {
		return
	}
	p, live := v.part.begin(), int64(0)
	for i := range v.Decisions {
		if e.mirrors(v, i) {
			if live == 0 {
				live = e.liveOf(v)
			}
			p.add(i, mirrored(v.Match.Charges[i], v.Decisions[i].Charged, live))
		}
	}
	e.askPart(ctx, e.cfg.Fallback, p)
	v.mirrored = v.mirrored[:0]
	if _, wait := v.longestWait(); wait > 0 {
		v.mirrored = resize(v.mirrored, len(v.Decisions))
		for i := range v.Decisions {
			v.mirrored[i] = v.Decisions[i].Charged // by tokens that the store holds: they are told
		}
		for n, i := range p.at {
			v.mirrored[i] = p.decisions[n].Charged
		}
	}
}

// mirrors reports whether the fallback counts now what the store has charged for charge i.
func (e *Engine) mirrors(v *Verdict, i int) bool {
	d := &v.Decisions[i]
	return d.Charged != 0 && d.Reason == "" && (!d.Held || !e.sums) && v.Match.Terms[i].Effect.OnFailure == descriptors.FailLocal
}

// tells reports whether the fallback counts what the store has charged for charge i later, in a sum.
func (e *Engine) tells(v *Verdict, i int) bool {
	return e.cfg.Fallback != nil && e.sums && v.Decisions[i].Held && v.Match.Terms[i].Effect.OnFailure == descriptors.FailLocal
}

// mirrorHeld counts in the fallback a sum that requests spent of a counter's tokens that the store holds.
func (e *Engine) mirrorHeld(c limit.Charge, n int64) {
	if e.cfg.Fallback != nil && c.Share != "" {
		e.ask(context.Background(), e.cfg.Fallback, []limit.Charge{mirrored(c, n, e.live(c.Share))}, make([]limit.Decision, 1))
	}
}

// mirrored is the charge that counts in the fallback that n tokens were taken, or given back if n is negative. It refuses
// nothing and starts no cool-down.
//
// The counts of windows and logs are those of the whole limit: what is above the share stays until time gives it back. A
// bucket would take the longer for that the smaller the share is, because it fills at the share's rate. So it runs on the
// share from the start, and a spend takes no more than is left of it. To a throttled request it lends no more than its burst, however many
// tokens the store lent.
func mirrored(c limit.Charge, n, live int64) limit.Charge {
	c.Cost, c.Mode, c.Each, c.Penalty = n, limit.Shadow, true, nil
	switch {
	case n < 0:
		c.Op, c.Cost = limit.Refund, -n
	case !c.Limit.Algorithm.Fills():
		c.Op = limit.Debit
	}
	if c.Limit.Algorithm.Fills() {
		c.Limit = shareOf(c.Limit, live)
		c.MaxWait = min(c.MaxWait, fillTime(&c.Limit))
	}
	return c
}

// part is some of the charges of a request, changed for a call of their own.
type part struct {
	charges   []limit.Charge
	decisions []limit.Decision
	at        []int // charges[n] is about Match.Charges[at[n]]
}

func (p *part) begin() *part {
	p.charges, p.at = p.charges[:0], p.at[:0]
	return p
}

func (p *part) add(i int, c limit.Charge) {
	p.charges, p.at = append(p.charges, c), append(p.at, i)
}

// askPart fills the part's decisions. Where the Counter panics they are undecided.
func (e *Engine) askPart(ctx context.Context, c Counter, p *part) {
	p.decisions = resize(p.decisions, len(p.charges))
	if len(p.charges) == 0 {
		return
	}
	if !e.ask(ctx, c, p.charges, p.decisions) {
		clear(p.decisions)
	}
}
