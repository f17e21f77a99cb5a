package limit

// Decide decides all charges of a request at one instant (now: µs since the epoch), as charge.lua does, and charges all of
// them or none, but for those with Each. With refused the request is refused already, elsewhere.
//
// counters[i] belongs to charges[i].Key, coolings[i] to its PenaltyKey and may be nil without a Penalty; equal keys share one
// pointer. Counters change in place. decisions[i] is overwritten. Refusals are not recorded: Cooling.Punish does that where
// Charge.Punishes. Up to four charges allocate nothing.
func Decide(now int64, refused bool, charges []Charge, counters []*Counter, coolings []*Cooling, decisions []Decision) {
}
