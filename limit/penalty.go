package limit

import (
	"slices"
	"time"
)

// Bounds of a Penalty. What lies beyond them is taken for the bound.
const (
	MaxThreshold   = 1000           // refusals; each that counts is stored
	MaxMultipliers = 16             // further ones are not looked at; no multipliers are one of 1
	MaxCoolDown    = 24 * time.Hour // its multiplier included
)

// Penalty is a cool-down for a client that is refused again and again: the Threshold-th refusal within Window starts
// one of CoolDown × Multipliers[k], where k is how many the client had within Window; the last multiplier repeats.
type Penalty struct {
	Threshold   int64         // refusals, from 1
	Window      time.Duration // in which they are counted
	CoolDown    time.Duration // before it is multiplied
	Multipliers []int64       // from 1, at least one of them
	DryRun      bool          // counts, and never refuses
}

func (p *Penalty) threshold() int64 { return min(max(p.Threshold, 1), MaxThreshold) }

func (p *Penalty) window() int64 { return max(min(p.Window, MaxWindow).Microseconds(), 1) }

// lengths is how many different cool-downs there can be in a window.
func (p *Penalty) lengths() int { return min(max(len(p.Multipliers), 1), MaxMultipliers) }

// length is how long the cool-down lasts that follows k others, in µs.
func (p *Penalty) length(k int) int64 {
	most, length := MaxCoolDown.Microseconds(), max(p.CoolDown.Microseconds(), 1)
	if len(p.Multipliers) > 0 {
		length = product(min(length, most), max(p.Multipliers[min(k, p.lengths()-1)], 1))
	}
	return min(length, most)
}

func (p *Penalty) longest() int64 {
	longest := int64(0)
	for k := range p.lengths() {
		longest = max(longest, p.length(k))
	}
	return longest
}

// Penalizes reports whether a cool-down refuses the charge: not a refund or a debit, which are never refused.
func (c *Charge) Penalizes() bool {
	return c.Penalty != nil && (c.Op == Spend || c.Op == Peek)
}

// DryRun reports that a cool-down shows in the decision but does not refuse, for a charge with a Penalty.
func (c *Charge) DryRun() bool {
	return c.Penalty.DryRun || c.Mode == Shadow
}

// Punishes reports whether the decision has to be recorded by the script Punish, or by Cooling.Punish: a refusal of a
// spend by its own counter, or by a cool-down that lasts longer than the penalty can reach, because the clock was set
// back or the penalty changed. Charges of one request with the same PenaltyKey are recorded once.
func (c *Charge) Punishes(d Decision) bool {
	if c.Penalty == nil || c.Op != Spend || d.Outcome != Refused || d.Cached {
		return false
	}
	return !d.Penalized || !c.DryRun() && d.RetryAfter.Microseconds() > c.Penalty.longest()
}

// PunishKeys returns the two keys that the script Punish reads and writes for the charge. A reset deletes both.
func PunishKeys(c *Charge) []string {
	return []string{c.PenaltyKey + ":refusals", coolDownKey(c)}
}

func coolDownKey(c *Charge) string { return c.PenaltyKey + ":cooldowns" }

// PunishArguments returns the arguments of Punish. Its reply is now, and the rest of the cool-down in µs, 0 for none.
func PunishArguments(c *Charge) []string {
	p := c.Penalty
	args := []string{decimal(p.threshold()), decimal(p.window())}
	for k := range p.lengths() {
		args = append(args, decimal(p.length(k)))
	}
	return args
}

// Punished enters into the decision of a charge that Punishes the rest of a cool-down in µs, as Punish replied it:
// RetryAfter is the longer of both. Where a cool-down refused, it is that rest.
func (d *Decision) Punished(c *Charge, rest int64) {
	switch {
	case c.DryRun():
	case d.Penalized:
		d.RetryAfter = micros(rest)
	default:
		d.RetryAfter = max(d.RetryAfter, micros(rest))
	}
}

// Cooling is what a store keeps of one client under one penalty: instants in µs since the epoch. The zero value is a
// client that was never refused. It is not safe for concurrent use.
type Cooling struct {
	refusals []int64 // that may still lead to a cool-down
	ends     []int64 // of cool-downs; only the last one may lie ahead
}

// rest is how long a cool-down still lasts, in µs.
func (c *Cooling) rest(now int64) int64 {
	if c == nil {
		return 0
	}
	return max(last(c.ends)-now, 0)
}

// Punish records a refusal at an instant (µs since the epoch) and returns how long the cool-down lasts that runs or
// starts, in µs; 0: none. It is the twin of penalty.lua.
func (c *Cooling) Punish(p *Penalty, now int64) (rest int64) {
	if longest := p.longest(); last(c.ends) > now+longest {
		c.ends[len(c.ends)-1] = now + longest
	}
	if rest := c.rest(now); rest > 0 {
		return rest
	}
	window := p.window()
	at := max(now, min(last(c.refusals), now+window))
	c.refusals = drop(append(c.refusals, at), at-window)
	c.ends = drop(c.ends, at-window)
	if int64(len(c.refusals)) < p.threshold() {
		return 0
	}
	length, lengths := p.length(len(c.ends)), p.lengths()
	c.ends = append(c.ends, now+length)
	c.ends = slices.Delete(c.ends, 0, max(len(c.ends)-lengths, 0))
	c.refusals = nil
	return length
}

// drop removes the instants up to an edge from the front.
func drop(instants []int64, edge int64) []int64 {
	n := 0
	for n < len(instants) && instants[n] <= edge {
		n++
	}
	return slices.Delete(instants, 0, n)
}

func last(instants []int64) int64 {
	if len(instants) == 0 {
		return 0
	}
	return instants[len(instants)-1]
}

// Expires is the instant, in µs since the epoch, from which on nothing in it matters; 0: now.
func (c *Cooling) Expires(p *Penalty) int64 {
	if len(c.ends)+len(c.refusals) == 0 {
		return 0
	}
	return max(last(c.ends), last(c.refusals)) + p.window()
}

// Size is about how many bytes it takes.
func (c *Cooling) Size() int { return 48 + 8*(cap(c.refusals)+cap(c.ends)) }
