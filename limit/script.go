package limit

// Script is a Lua script of this package. Every call has now in front of the arguments that Append appends: "0" is the
// server's clock, and only tests give another.
type Script struct {
	Name string // a short label
	Text string
}

// The scripts.
var (
	Tree     = &Script{Name: "tree"}     // tree.lua: spends of descriptor trees
	Together = &Script{Name: "together"} // charge.lua: all but logs
	Log      = &Script{Name: "log"}      // log.lua in front of charge.lua: all
	Punish   = &Script{Name: "punish"}   // penalty.lua; see PunishKeys
)

// ScriptOf returns the cheapest script that decides the charges of a request. Together and Log decide also what Tree decides.
func ScriptOf(charges []Charge) *Script { return Together }

// Append appends the keys and arguments of a request to those of a call, and returns how many integers of the reply are the
// request's. With refused the request is refused already, elsewhere, and only charges with Each take. Requests of one call are
// put one behind the other; their replies follow now in the same order.
func (s *Script) Append(keys, args []string, charges []Charge, refused bool) (k, a []string, replies int) {
	return keys, args, 0
}

// Decide reads the reply to a request: reply[0] is now as the script replied it, then come as many integers as Append
// returned. decisions[i] is overwritten. With an error all are Undecided.
func (s *Script) Decide(reply []int64, charges []Charge, decisions []Decision) error { return nil }
