package faults

import "slices"

// tally sums up the answers for one key.
type tally struct {
	decided int64 // by the store
	unsure  int64 // of which it is unknown whether the store ran them: once, or not at all
}

// tallies are those of all keys of the load; keys of domain share have none, because their counters are gone by the
// end.
func (x *trial) tallies() []tally {
	all := make([]tally, keys)
	for i := range x.all {
		a := &x.all[i]
		t := &all[a.key]
		switch {
		case domainOf(a.key) == "share":
		case a.counted():
			t.decided++
		case a.err != nil || slices.Contains(unknownReasons, a.degraded):
			t.unsure++
		}
	}
	return all
}

// executedOnce checks that no decision ran twice: what is in Redis is what the store answered, and at most the unknown
// outcomes and the late ones more, and the tokens of leases that could not be returned. What was decided without the
// store is not charged to it.
func (x *trial) executedOnce(used map[int]int64, unknown int64) {
	x.Helper()
	var lost, more, twice int64
	for key, t := range x.tallies() {
		if x.lost(key) {
			continue
		}
		applied := used[key] - x.tags[key]
		x.seen.applied += applied
		lost += max(0, t.decided-applied)
		more += max(0, applied-t.decided)
		twice += max(0, applied-t.decided-t.unsure)
	}
	if lost > 0 {
		x.fails("%d charges were answered and are not in Redis", lost)
	}
	kept := x.grown("spillway_lease_expired_total")
	if kept > 0 {
		x.note("%d tokens were not returned", kept)
	}
	if more > unknown+kept {
		x.fails("%d charges are in Redis that no answer tells of, and only %d outcomes are unknown or came late", more,
			unknown)
	}
	if twice > kept {
		x.fails("%d charges are in Redis that no call asked for", twice)
	}
}
