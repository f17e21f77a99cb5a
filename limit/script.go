package limit

import (
	_ "embed" // for the scripts
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"
)

//go:embed charge.lua
var chargeLua string

//go:embed log.lua
var logLua string

//go:embed penalty.lua
var penaltyLua string

//go:embed tree.lua
var treeLua string

// Script is a Lua script of this package. Every call has now in front of the arguments that Append appends: "0" is the
// server's clock, and only tests give another.
type Script struct {
	Name string // a short label
	Text string
}

// The scripts.
var (
	Tree     = &Script{Name: "tree", Text: treeLua}           // spends of descriptor trees
	Together = &Script{Name: "together", Text: chargeLua}     // all but logs
	Log      = &Script{Name: "log", Text: logLua + chargeLua} // all
	Punish   = &Script{Name: "punish", Text: penaltyLua}      // see PunishKeys
)

// Numbers of an argument and of a reply.
const (
	chargeBytes    = 53
	chargeReplies  = 5 // of Together and Log, per charge
	treeReplies    = 2 // of Tree, per charge
	outcomeForeign = 0
	outcomeCooling = 3
	outcomeShown   = 3 // is added to an outcome beside a cool-down that only shows
	outcomeBeside  = 6
)

// ScriptOf returns the cheapest script that decides the charges of a request. Together and Log decide also what Tree
// decides.
func ScriptOf(charges []Charge) *Script {
	s := Tree
	for i := range charges {
		if charges[i].Limit.Algorithm.KeepsLog() {
			return Log
		}
		if !ofTree(&charges[i]) {
			s = Together
		}
	}
	return s
}

// ofTree reports whether tree.lua decides the charge.
func ofTree(c *Charge) bool {
	return c.Limit.Algorithm == FixedWindow && c.Limit.Calendar == nil && c.Op == Spend && c.Each && c.Mode != Quota &&
		c.Cost > 0 && c.Penalty == nil
}

// Append appends the keys and arguments of a request to those of a call, and returns how many integers of the reply are
// the request's. With refused the request is refused already, elsewhere, and only charges with Each take. Requests of
// one call are put one behind the other; their replies follow now in the same order.
func (s *Script) Append(keys, args []string, charges []Charge, refused bool) (k, a []string, replies int) {
	for i := range charges {
		keys = append(keys, charges[i].Key)
	}
	if s == Tree {
		for i := range charges {
			t := termsOf(&charges[i])
			count := max(t.most, 0)
			args = append(args, decimal(min(t.cost, count+1)), decimal(count), decimal(t.window/1000))
		}
		return keys, args, treeReplies * len(charges)
	}
	var few [1 + 4*chargeBytes]byte
	b := append(few[:0], flag(refused))
	for i := range charges {
		t := termsOf(&charges[i])
		b = t.append(b)
		if t.penalty > 0 {
			keys = append(keys, coolDownKey(&charges[i]))
		}
	}
	return keys, append(args, string(b)), chargeReplies * len(charges)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}

// append appends the terms as charge.lua unpacks them.
func (t *terms) append(b []byte) []byte {
	b = append(b, t.algorithm, byte(t.op), byte(t.mode), flag(t.each), t.penalty)
	for _, n := range [...]int64{t.cost, t.most, t.window, t.fine, t.debt, t.time} {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(n)))
	}
	return b
}

// Decide reads the reply to a request: reply[0] is now as the script replied it, then come as many integers as Append
// returned. decisions[i] is overwritten. With an error all are Undecided.
func (s *Script) Decide(reply []int64, charges []Charge, decisions []Decision) error {
	clear(decisions)
	width, read := chargeReplies, decided
	if s == Tree {
		width, read = treeReplies, grown
	}
	if len(reply) != 1+width*len(charges) {
		return fmt.Errorf("the reply of %s must have %d integers, not %d", s.Name, 1+width*len(charges), len(reply))
	}
	for i := range charges {
		d, ok := read(reply[0], reply[1+width*i:][:width], &charges[i])
		if !ok {
			clear(decisions)
			return fmt.Errorf("the reply of %s must hold a decision, not %d", s.Name, reply[1+width*i:][:width])
		}
		decisions[i] = d
	}
	return nil
}

// decided reads what charge.lua replies about a charge, and whether it can be that.
func decided(now int64, reply []int64, c *Charge) (d Decision, ok bool) {
	outcome, remaining, charged, reset, wait := reply[0], reply[1], reply[2], reply[3], reply[4]
	switch {
	case min(now-1, remaining, reset, wait, charged+exact) < 0:
		return d, false
	case max(now, remaining, reset, wait, charged) > exact:
		return d, false
	case outcome == outcomeForeign:
		return Decision{At: now, Reason: ReasonForeign}, true
	case outcome == outcomeBeside:
		return Decision{At: now, Reason: ReasonBeside}, true
	case uint64(outcome) > outcomeBeside:
		return d, false
	}
	return decisionOf(now, outcome, remaining, charged, reset, wait), true
}

// decisionOf makes a decision of the integers that charge.lua replies.
func decisionOf(now, outcome, remaining, charged, reset, wait int64) Decision {
	d := Decision{Outcome: Allowed, Remaining: remaining, Charged: charged, At: now, ResetAfter: micros(reset)}
	d.Penalized = outcome >= outcomeCooling
	if outcome == outcomeCooling || outcome%outcomeShown == int64(Refused) {
		d.Outcome, d.RetryAfter = Refused, micros(wait)
	} else {
		d.Wait = micros(wait)
	}
	return d
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// grown reads what tree.lua replies about a charge. In the last ms of a window a new count is that of the next window;
// of one that is there the reply does not show which window counts, and the present one is taken for it, which ends
// earlier.
func grown(now int64, reply []int64, c *Charge) (d Decision, ok bool) {
	took, used := reply[0], reply[1]
	if took == -1 && used == -1 {
		return Decision{At: now, Reason: ReasonForeign}, now > 0
	}
	if now < 1 || now > exact || took < 0 || used < took || used > exact {
		return d, false
	}
	t, at := termsOf(c), now
	if used == took {
		at += 1000
	}
	d = Decision{Outcome: Allowed, Remaining: max(t.most-used, 0), Charged: took, At: now}
	d.ResetAfter = micros((at/t.window+1)*t.window - now)
	if took < t.cost {
		d.Outcome, d.RetryAfter = Refused, d.ResetAfter
	}
	return d, true
}
