package limit

import "time"

// Bounds of a Penalty. What lies beyond them is taken for the bound.
const (
	MaxThreshold   = 1000           // refusals; each that counts is stored
	MaxMultipliers = 16             // further ones are not looked at; no multipliers are one of 1
	MaxCoolDown    = 24 * time.Hour // its multiplier included
)

// Penalty is a cool-down for a client that is refused again and again: the Threshold-th refusal within Window starts one
// of CoolDown × Multipliers[k], where k is how many the client had within Window; the last multiplier repeats.
type Penalty struct {
	Threshold   int64         // refusals, from 1
	Window      time.Duration // in which they are counted
	CoolDown    time.Duration // before it is multiplied
	Multipliers []int64       // from 1, at least one of them
	DryRun      bool          // counts, and never refuses
}

// Penalizes reports whether a cool-down refuses the charge: not a refund or a debit, which are never refused.
func (c *Charge) Penalizes() bool {
	return c.Penalty != nil && (c.Op == Spend || c.Op == Peek)
}

// DryRun reports that a cool-down shows in the decision but does not refuse, for a charge with a Penalty.
func (c *Charge) DryRun() bool {
	return c.Penalty.DryRun || c.Mode == Shadow
}

// Punishes reports whether the decision has to be recorded by the script Punish, or by Cooling.Punish: a refusal of a spend
// by its own counter, or by a cool-down that lasts longer than the penalty can reach. Charges of one request with the same
// PenaltyKey are recorded once.
func (c *Charge) Punishes(d Decision) bool { return false }

// PunishKeys returns the two keys that the script Punish reads and writes for the charge. A reset deletes both.
func PunishKeys(c *Charge) []string {
	return []string{c.PenaltyKey + ":refusals", c.PenaltyKey + ":cooldowns"}
}

// PunishArguments returns the arguments of Punish. The reply is now (µs) and the rest of the cool-down in µs, 0 for none.
func PunishArguments(c *Charge) []string { return nil }

// Punished enters into the decision of a charge what Punish replied, which is the rest of a cool-down in µs: RetryAfter is
// the longer of both.
func (d *Decision) Punished(c *Charge, rest int64) {
	if wait := time.Duration(rest) * time.Microsecond; !c.DryRun() {
		d.RetryAfter = max(d.RetryAfter, wait)
	}
}

// Cooling is what a store keeps of one client under one penalty. The zero value is a client that was never refused. It is not
// safe for concurrent use.
type Cooling struct {
	ends     []int64 // of cool-downs, in µs since the epoch, oldest first; only the last may lie ahead
	refusals []int64 // that count towards the next cool-down
}

// Punish records a refusal at an instant (µs since the epoch) and returns how long the cool-down lasts that runs or starts,
// in µs; 0: none. It is the twin of penalty.lua.
func (c *Cooling) Punish(p *Penalty, now int64) (rest int64) { return 0 }

// Expires is the instant, in µs since the epoch, from which on nothing in it matters; 0: now.
func (c *Cooling) Expires(p *Penalty) int64 { return 0 }

// Size is about how many bytes it takes.
func (c *Cooling) Size() int { return 0 }
