package faults

import (
	"slices"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// tally is what the answers for one key tell about its counter.
type tally struct {
	decided int64 // by the store
	alone   int64 // admitted locally, and surely not by the store, to which that is owed
	unsure  int64 // of which it is unknown whether the store ran them: once, or not at all
}

// tallies are those of all keys of the load; keys of domain share have none, because their counters are gone by the end.
func (x *trial) tallies() []tally {
	all := make([]tally, keys)
	for i := range x.all {
		a := &x.all[i]
		t := &all[a.key]
		switch domain := domainOf(a.key); {
		case domain == "share":
		case a.counted():
			t.decided++
		case a.err != nil || slices.Contains(unknownReasons, a.degraded):
			t.unsure++
		case domain == "local":
			t.alone++
		}
	}
	return all
}

// executedOnce checks that no decision ran twice: what is in Redis is what the store answered, what it was charged afterwards for what
// was admitted locally, and at most the unknown outcomes and the late ones more. What no answer tells of is there once.
func (x *trial) executedOnce(used map[int]int64, unknown int64) {
	x.Helper()
	var lost, more, twice int64
	for key, t := range x.tallies() {
		applied := used[key] - x.tags[key]
		x.seen.applied += applied
		lost += max(0, t.decided-applied)
		extra := applied - t.decided - t.alone
		twice += max(0, extra-t.unsure)
		if domainOf(key) != "local" { // a local key is also charged for those unsure ones that were never sent
			more += max(0, extra)
		}
	}
	if lost > 0 {
		x.fails("%d charges were answered and are not in Redis", lost)
	}
	if more > unknown {
		x.fails("%d charges are in Redis that no answer tells of, and only %d outcomes are unknown or came late", more, unknown)
	}
	if twice > 0 {
		x.fails("%d charges are in Redis that no call asked for", twice)
	}
}

// chargedBack checks that the store was charged for all that was admitted without it, but for payments whose outcome is unknown and
// debts that were dropped, and that the metrics tell how much that was.
func (x *trial) chargedBack(used map[int]int64) {
	x.Helper()
	var owed, most, missing int64
	for key, t := range x.tallies() {
		if domainOf(key) != "local" {
			continue
		}
		owed += t.alone
		most += t.alone + t.unsure
		missing += max(0, t.decided+t.alone-(used[key]-x.tags[key]))
	}
	for i := range x.all { // these may be charged, too, as long as their second lasts
		if a := &x.all[i]; domainOf(a.key) == "share" && !a.counted() && a.code != ratelimitv3.RateLimitResponse_OVER_LIMIT {
			most++
		}
	}
	paid := x.grown("spillway_charged_back_total")
	gone := x.grown("spillway_charge_back_lost_total") + x.grown("spillway_owed_dropped_total")
	x.note("%d owed, %d charged back, %d of that lost", owed, paid, gone)
	if missing > gone {
		x.fails("%d charges were admitted locally and are not in Redis, and only %d payments were lost", missing, gone)
	}
	if paid < owed-gone || paid > most {
		x.fails("%d charges were charged back, want %d to %d", paid, owed-gone, most)
	}
}
