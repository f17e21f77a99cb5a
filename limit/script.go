package limit

import (
	"crypto/sha1"
	_ "embed" // for the scripts
	"encoding/binary"
	"encoding/hex"
	"math"
)

//go:embed arith.lua
var arithLua string

//go:embed state.lua
var stateLua string

//go:embed token_bucket.lua
var tokenBucketLua string

//go:embed sliding_window.lua
var slidingWindowLua string

//go:embed fixed_window.lua
var fixedWindowLua string

//go:embed sliding_log.lua
var slidingLogLua string

//go:embed penalty.lua
var penaltyLua string

//go:embed spend.lua
var spendLua string

//go:embed tight.lua
var tightLua string

//go:embed windows.lua
var windowsLua string

//go:embed one.lua
var oneLua string

//go:embed first.lua
var firstLua string

//go:embed batch.lua
var batchLua string

//go:embed lease.lua
var leaseLua string

// Script is the one script that decides on a Redis server what Decide decides in memory. The head of spend.lua describes its
// keys, arguments and reply; Call packs and reads them.
var Script = arithLua + stateLua + tokenBucketLua + slidingWindowLua + fixedWindowLua + slidingLogLua + penaltyLua + spendLua

// ScriptSHA is the name under which a Redis server knows Script, for EVALSHA.
var ScriptSHA = sha(Script)

// LeanScript is Script without what most calls do not need: the log, waits and penalties. In front of it stands tight.lua, which
// answers the common calls at a fraction of the cost.
var LeanScript = tightLua + oneLua + arithLua + stateLua + tokenBucketLua + slidingWindowLua + fixedWindowLua + spendLua

// LeanSHA is the name of LeanScript.
var LeanSHA = sha(LeanScript)

// TightScript decides a request whose Call is Simple, or replies nothing: then nothing was written, and Call.Widen is next. It is a quarter of
// LeanScript, so a server that has lost its scripts has it again soon.
var TightScript = tightLua + firstLua

// TightSHA is the name of TightScript.
var TightSHA = sha(TightScript)

// BatchScript decides several requests in one call, as far as tight.lua can: those whose Call is Simple. The head of batch.lua describes
// its keys, arguments and reply.
var BatchScript = tightLua + windowsLua + batchLua

// BatchSHA is the name of BatchScript.
var BatchSHA = sha(BatchScript)

// LeaseScript lends tokens of one counter, as Lend does. The head of lease.lua describes its key, argument and reply; Ask packs and reads them.
var LeaseScript = arithLua + stateLua + tokenBucketLua + slidingWindowLua + fixedWindowLua + leaseLua

// LeaseSHA is the name of LeaseScript.
var LeaseSHA = sha(LeaseScript)

func sha(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Call is one call of Script: the keys and arguments of EVALSHA. The zero value holds no charges; Set fills it.
type Call struct {
	Keys   []string // distinct
	packed []byte
	extras []byte
	logs   bool // a charge is of a sliding log
	other  bool // a charge is of a kind that tight.lua leaves to the general code
	wide   bool // tight.lua has left it to the general code
}

// Sizes of the packed argument and reply, in bytes.
const (
	headSize   = 9
	chargeSize = 40
	nowSize    = 8 // of every reply
	saidSize   = 33
	stateSize  = 32
)

// NewCall packs the charges of one request. With refused only charges with Each take. now is in microseconds since the
// epoch; 0 is the server's own time, and only tests give another.
func NewCall(charges []Charge, refused bool, now int64) Call {
	var c Call
	c.Set(charges, refused, now)
	return c
}

// Set packs the charges of another request, as NewCall does, into the memory of the last one.
func (c *Call) Set(charges []Charge, refused bool, now int64) {
	c.Keys, c.packed, c.extras, c.logs, c.other, c.wide = c.Keys[:0], c.packed[:0], c.extras[:0], false, false, false
	if need := headSize + chargeSize*len(charges); cap(c.packed) < need {
		c.packed = make([]byte, 0, need)
	}
	if cap(c.Keys) < len(charges) {
		c.Keys = make([]string, 0, len(charges))
	}
	c.packed = appendNumber(c.packed, now)
	c.packed = append(c.packed, flag(refused))
	var seen map[string]int
	if len(charges) > 16 {
		seen = make(map[string]int, len(charges))
	}
	for i := range charges {
		c.packed = c.add(&charges[i], c.place(charges[i].Key, seen))
	}
	for i := range charges {
		c.extra(&charges[i], i+1, seen)
	}
}

// Args are the arguments of the call: Packed, and Extras if there are any.
func (c *Call) Args() []any {
	if len(c.extras) == 0 {
		return []any{c.packed}
	}
	return []any{c.packed, c.extras}
}

// Packed is the first argument of the call. It is good until the next Set.
func (c *Call) Packed() []byte { return c.packed }

// Extras is the second argument of the call, empty where the call has one argument only. It is good until the next Set.
func (c *Call) Extras() []byte { return c.extras }

// Script is the leaner of the two that can make any such call, and its name.
func (c *Call) Script() (text, name string) {
	if c.logs || len(c.extras) > 0 {
		return Script, ScriptSHA
	}
	return LeanScript, LeanSHA
}

// First is the script to try first, and its name: that of a Simple call may reply nothing.
func (c *Call) First() (text, name string) {
	if c.Simple() {
		return TightScript, TightSHA
	}
	return c.Script()
}

// Widen lets the general code make a call to which tight.lua replied nothing.
func (c *Call) Widen() { c.wide = true }

// Simple reports whether tight.lua can make the call, alone or together with others.
func (c *Call) Simple() bool {
	return !c.other && !c.wide && len(c.extras) == 0 && len(c.Keys) > 0 && headSize+chargeSize*len(c.Keys) == len(c.packed)
}

// extra packs what only some charges have: a longest wait, or for a refund its end; a calendar; a penalty.
func (c *Call) extra(charge *Charge, number int, seen map[string]int) {
	wait, calendar, penalizes := charge.bound(), rateOf(&charge.Limit).calendar, charge.Penalizes()
	if wait == 0 && calendar == nil && !penalizes {
		return
	}
	place := 0
	if penalizes {
		place = c.place(charge.PenaltyKey, seen)
	}
	b := binary.BigEndian.AppendUint32(c.extras, uint32(number))
	b = appendNumber(b, wait)
	b = binary.BigEndian.AppendUint32(b, uint32(place))
	b = appendEdges(b, calendar)
	if penalizes {
		b = appendPenalty(b, charge)
	}
	c.extras = b
}

// bound is the longest wait of a charge in µs, or the end of a refund; 0: neither.
func (c *Charge) bound() int64 {
	switch {
	case c.waits():
		return c.maxWait()
	case c.Op == Refund && c.Until > 0:
		return c.Until
	}
	return 0
}

func appendPenalty(b []byte, charge *Charge) []byte {
	o := policyOf(charge.Penalty)
	b = append(b, flag(charge.DryRun()))
	b = appendNumber(b, o.threshold)
	b = appendNumber(b, o.window)
	b = append(b, byte(len(o.multipliers)))
	for k := range o.multipliers {
		b = appendNumber(b, o.length(k))
	}
	return b
}

// appendEdges appends how many edges there are, and the edges.
func appendEdges(b []byte, calendar *Calendar) []byte {
	if calendar == nil {
		return append(b, 0)
	}
	b = append(b, byte(len(calendar.Edges)))
	for _, edge := range calendar.Edges {
		b = appendNumber(b, edge)
	}
	return b
}

// place returns the number of a key, from 1, and adds it if it is new.
func (c *Call) place(key string, seen map[string]int) int {
	if seen != nil {
		if n := seen[key]; n > 0 {
			return n
		}
		seen[key] = len(c.Keys) + 1
	} else {
		for i, k := range c.Keys {
			if k == key {
				return i + 1
			}
		}
	}
	c.Keys = append(c.Keys, key)
	return len(c.Keys)
}

func (c *Call) add(charge *Charge, place int) []byte {
	l := rateOf(&charge.Limit)
	algorithm := charge.Limit.Algorithm
	if !algorithm.known() {
		algorithm = TokenBucket
	}
	c.logs = c.logs || algorithm.KeepsLog()
	c.other = c.other || algorithm.KeepsLog() || charge.Op == Refund || l.count == 0
	b := binary.BigEndian.AppendUint32(c.packed, uint32(place))
	b = append(b, byte(algorithm), byte(charge.Op), byte(charge.Mode), flag(charge.Each))
	b = appendNumber(b, l.count)
	b = appendNumber(b, l.window)
	b = appendNumber(b, l.burst)
	return appendNumber(b, charge.cost())
}

// appendNumber appends an integer as a big-endian double, which is exact up to 2^53.
func appendNumber(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

// number reads such a double.
func number(b []byte) int64 {
	return int64(math.Float64frombits(binary.BigEndian.Uint64(b)))
}

func flag(set bool) byte {
	if set {
		return 1
	}
	return 0
}
