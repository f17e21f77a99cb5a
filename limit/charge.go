package limit

import "time"

// Op is what a charge does. The zero value spends.
type Op uint8

// The operations. Their numbers are those of charge.lua. Lend, Spent and Returned are of a lease: alone in a request.
const (
	Spend    Op = iota // take Cost if it is there, else refuse
	Peek               // answer as Spend would, and take nothing
	Refund             // give Cost back, never beyond full; always allowed
	Debit              // take Cost in full, below zero if need be but never below -Count; always allowed (post-paid)
	Lend               // take Cost ahead, but at most what is left / Parts; Decision.Wait is the lease's end
	Spent              // of what a bucket lent until Until, Cost was spent; a window needs no such report
	Returned           // of what a bucket lent until Until, Cost was not spent; a window gets a Refund
)

// Mode is what a refusal by a charge means for the request. The zero value enforces.
type Mode uint8

// The modes. Their numbers are those of charge.lua.
const (
	Enforced Mode = iota // refuses the request
	Shadow               // counted, never refuses the request
	Quota                // refuses the request only when every Quota charge of the request refuses
)

// Charge is one limit applied to one counter by one request.
type Charge struct {
	Key   string // identity of the counter; charges of one request may share it
	Limit Limit  //
	Cost  int64  // tokens, 0..MaxCost
	Op    Op     //
	Mode  Mode   //
	Each  bool   // charged even when the request is refused; a refused Spend takes what is left (descriptor trees)
	Lease int64  // tokens that a sidecar may have on lease at once; 0: every charge is made in the store
	Class uint32 // of the limit that it comes from: what one class fills, a full store takes from that class
	Share string // the domain whose sidecars share the limit while the store is away; empty: none counts it then

	MaxWait    time.Duration // throttle of a TokenBucket: a Spend that is due within it is taken now and answered then
	Until      int64         // µs on the store's clock. Refund: its end, exclusive, 0: none; report: the lease's
	Parts      int64         // Lend: into how many parts what is left is divided; below 1 is taken for 1
	Penalty    *Penalty      // of a rule that has one; shared by all its charges, never changed
	PenaltyKey string        // identity of the penalty's state, with Penalty
}

// Asks returns how many tokens the charge asks for; more is false where it gives some back.
func (c *Charge) Asks() (tokens int64, more bool) {
	switch c.Op {
	case Refund:
		return 0, false
	case Spend, Debit:
		return c.Cost, true
	}
	return 0, true
}

// Outcome is what one limit decided. The zero value is Undecided, so that a forgotten decision never admits.
type Outcome uint8

// The outcomes.
const (
	Undecided Outcome = iota // the store could not decide; Reason is why
	Allowed
	Refused
)

// Reasons of Undecided decisions that Script.Decide makes.
const (
	ReasonForeign = "wrongtype" // the counter's key holds a value that no limit wrote; nothing was taken
	ReasonBeside  = "beside"    // another charge of the request met such a key; nothing was taken
)

// Decision is what one limit decided about one charge.
type Decision struct {
	Outcome    Outcome
	Remaining  int64         // whole tokens left afterwards, never negative
	Charged    int64         // tokens really taken; negative when given back
	At         int64         // of the decision, in µs since the epoch on the store's clock; 0: the store did not decide
	ResetAfter time.Duration // until full, or until the window ends (fixed window)
	RetryAfter time.Duration // if refused: until this cost could pass if nothing else is spent; ResetAfter if never
	Reason     string        // with Undecided: why, as a short label
	Unknown    bool          // with Undecided: the charge may have been made, because only the reply is missing
	Held       bool          // admitted by tokens on lease, without asking the store
	Cached     bool          // refused by what was known of the counter, without asking the store
	Wait       time.Duration // with Allowed: until the tokens are due (throttle); of a Lend: until the lease ends
	Penalized  bool          // refused by a cool-down, or with a penalty's DryRun: would have been
}

// Refused reports whether the limit refuses, in any mode.
func (d *Decision) Refused() bool { return d.Outcome == Refused }

// Request is the charges of one request to a store. Its owner may use it again once the store has returned it.
type Request struct {
	Charges   []Charge
	Decisions []Decision // as many as Charges; Undecided with a Reason where the store could not decide
	Due       time.Time  // when its caller stops to wait; zero: the store's patience alone
	Fate      *Fate      // what became of the request if its caller leaves before the reply; nil: not followed
	MayLag    bool       // of a Peek: what was true a moment ago will do, as a replica knows it
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

// RefundUntil is the Until of a refund of what a charge took: while its window lasts, because in the next one it would
// undo the charges of others; of a bucket and a log until time has given it back, and all that others had taken then.
func RefundUntil(l Limit, d *Decision) int64 {
	if l.Algorithm == SlidingWindow {
		window := windowOf(&l)
		return d.At - d.At%window + window
	}
	return d.At + d.ResetAfter.Microseconds()
}
