package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// seen is what a trial measured.
type seen struct {
	answers, degraded int64
	cancelled         int64 // calls that their callers gave up, where they do
	// part of the answers of the fault, from its first half second on, that took more than 20 ms
	late       float64
	slow       float64       // part of the answers of the fault that took longer than a sidecar may wait for the store
	opened     time.Duration // from the fault until the first answer with the reason breaker; 0: never
	openBefore bool          // an answer of the last second before the fault had the reason breaker
	closed     time.Duration // from the repair until the breaker was closed
	decided    int64         // tagged charges that the store answered
	applied    int64         // tagged charges that are in Redis
	unknown    int64         // calls whose outcome is unknown
}

const (
	storePatience = 100 * time.Millisecond // how long a request waits for the store, as shipped
	opensWithin   = 400 * time.Millisecond // STORE_SILENCE as shipped, and what was waiting before
)

// gather works out what the answers show.
func (x *trial) gather() {
	s := &x.seen
	var all, slow, within, late float64
	for i := range x.all {
		a := &x.all[i]
		s.answers++
		if a.degraded != "" {
			s.degraded++
		}
		if x.gaveUp(a) {
			s.cancelled++
		}
		if a.counted() && domainOf(a.key) != "share" {
			s.decided++
		}
		came := a.at.Add(a.took).Sub(x.began)
		if a.degraded == "breaker" && a.at.Before(x.began) && came > -time.Second {
			s.openBefore = true
		}
		if a.at.Before(x.began) || a.at.After(x.ended) {
			continue
		}
		all++
		if a.took > storePatience+lateFrom {
			slow++
		}
		if a.degraded == "breaker" && (s.opened == 0 || came < s.opened) {
			s.opened = came
		}
		if a.at.Sub(x.began) > 500*time.Millisecond {
			within++
			if a.took > lateFrom {
				late++
			}
		}
	}
	s.slow, s.late = slow/max(1, all), late/max(1, within)
	s.unknown = x.unknown()
}

// gaveUp reports whether the caller did not wait for this answer. What it would have been is unknown.
func (x *trial) gaveUp(a *answer) bool { return x.leaves && status.Code(a.err) == codes.Canceled }

// common is the bar of every row: no errors, no empty answers, no panics, each decision executed at most once, the
// failure policies kept, and each degraded answer counted.
func (x *trial) common() {
	x.Helper()
	x.answered()
	x.keptPolicies()
	x.keptShare()
	if n := x.grown("spillway_degraded_decisions_total"); n < x.seen.degraded || n > x.seen.degraded+x.seen.cancelled {
		x.fails("%d degraded decisions counted, %d answers say so and %d were not waited for", n, x.seen.degraded,
			x.seen.cancelled)
	}
	x.executedOnce(x.counters(), x.seen.unknown+x.seen.cancelled+x.lateReplies())
}

// answered checks that every request got an answer with a code.
func (x *trial) answered() {
	x.Helper()
	errors := map[string]int{}
	zero := 0
	for i := range x.all {
		a := &x.all[i]
		switch {
		case x.gaveUp(a):
		case a.err != nil:
			errors[a.err.Error()]++
		case a.zero:
			zero++
		}
	}
	if len(errors) > 0 {
		x.fails("calls failed: %v", errors)
	}
	if zero > 0 {
		x.fails("%d answers say nothing", zero)
	}
	if n := x.after.sum("spillway_panics_total"); n != 0 || strings.Contains(x.sidecar.Output(), "panic") {
		x.fails("%d panics", n)
	}
}

// keptPolicies checks that the store's answers belong to their key, and that what it did not decide was decided by the
// rule's policy.
func (x *trial) keptPolicies() {
	x.Helper()
	bad := map[string]int{}
	for i := range x.all {
		a := &x.all[i]
		domain := domainOf(a.key)
		if a.err != nil || domain == "share" {
			continue
		}
		want := ratelimitv3.RateLimitResponse_OK
		if domain == "closed" && a.degraded != "" {
			want = ratelimitv3.RateLimitResponse_OVER_LIMIT
		}
		if a.code != want {
			bad[fmt.Sprintf("%s under %s (degraded %q)", a.code, domain, a.degraded)]++
		}
		if used := limitOf - int64(a.remaining) - x.tags[a.key]; a.degraded == "" && (used < 0 || used >= tag) &&
			!x.lost(a.key) {
			bad["answers of another key"]++
		}
	}
	if len(bad) > 0 {
		x.fails("wrong answers: %v", bad)
	}
}

// second is how often a key of domain share was admitted in one second.
type second struct{ store, local int }

// slip is by how much the wall clock was moved since the sidecar began, which counts on without that.
func (x *trial) slip() (most time.Duration) {
	for i := range x.all {
		at := x.all[i].at
		most = max(most, (at.Round(0).Sub(x.started.Round(0)) - at.Sub(x.started)).Abs())
	}
	return most
}

// seconds are those in which a key was admitted, by key and time. Only answers count that surely fell into one second,
// on the clocks of Redis and of the sidecar.
func (x *trial) seconds() map[[2]int64]*second {
	all, slip := map[[2]int64]*second{}, x.slip()
	for i := range x.all {
		a := &x.all[i]
		end := a.at.Add(a.took)
		if domainOf(a.key) != "share" || a.err != nil || a.code != ratelimitv3.RateLimitResponse_OK ||
			end.Add(slip).Unix() != a.at.Add(-slip).Unix() {
			continue
		}
		at := [2]int64{int64(a.key), a.at.Unix()}
		s := all[at]
		if s == nil {
			s = &second{}
			all[at] = s
		}
		if a.degraded == "" {
			s.store++
		} else {
			s.local++
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// worstSecond is the most that a key of domain share was admitted in a second, locally and by the store.
func (x *trial) worstSecond() (local, store int) {
	for _, s := range x.seconds() {
		local, store = max(local, s.local), max(store, s.store)
	}
	return local, store
}

// keptShare checks that a key of domain share was admitted at most its limit in each second by the store, and at most
// that locally: the share begins with nothing counted.
func (x *trial) keptShare() {
	x.Helper()
	local, store := x.worstSecond()
	if max(local, store) > shareOf {
		x.fails("%d admitted locally in one second, %d by the store, the limit is %d", local, store, shareOf)
	}
}

// opens checks that the breaker opened soon after the fault began, and not before.
func (x *trial) opens(within time.Duration) {
	x.Helper()
	if x.seen.openBefore {
		x.misses("the breaker was open before the fault")
	}
	if x.seen.opened == 0 {
		x.fails("the breaker did not open")
	}
	if x.seen.opened > within {
		x.misses("the breaker opened after %v, at most %v", x.seen.opened, within)
	}
}

// late bounds the part of the answers of the fault, from its first half second on, that came too late for Envoy.
func (x *trial) late(part float64) {
	x.Helper()
	if x.seen.late > part {
		x.misses("%.2f %% of the answers were late, at most %.2f %%", 100*x.seen.late, 100*part)
	}
}

// patient bounds the part of the answers of the fault that came later than a sidecar waits for the store.
func (x *trial) patient(part float64) {
	x.Helper()
	x.note("%.2f %% beyond patience", 100*x.seen.slow)
	if x.seen.slow > part {
		x.misses("%.2f %% of the answers took longer than the store's patience, at most %.2f %%", 100*x.seen.slow,
			100*part)
	}
}

// lost is whether a key's counter begins anew in this row.
func (x *trial) lost(key int) bool { return x.emptied != nil && x.emptied(key) }

// keepsClosed checks that the breaker did not open while the fault lasted.
func (x *trial) keepsClosed() {
	x.Helper()
	if n := x.changes(`to="open"`); n > 0 {
		x.misses("the breaker opened %d times", n)
	}
}

// degradedPart is the part of the answers sent during the fault that the store did not decide.
func (x *trial) degradedPart() float64 {
	var all, degraded float64
	for i := range x.all {
		a := &x.all[i]
		if a.at.Before(x.began) || a.at.After(x.ended) {
			continue
		}
		all++
		if a.degraded != "" {
			degraded++
		}
	}
	return degraded / max(1, all)
}

// outage is a fault that takes the store away as a whole, and its bounds.
func (x *trial) outage(begin, repair func()) {
	x.Helper()
	x.heals = 2 * time.Second
	x.during(begin, repair)
	x.common()
	x.opens(opensWithin)
	x.healed()
	x.late(0.01)
	x.patient(0.01)
}

// quantile is what that part of the answers sent in a span of time did not take longer than.
func (x *trial) quantile(q float64, from, to time.Time) time.Duration {
	var took []time.Duration
	for i := range x.all {
		if a := &x.all[i]; a.err == nil && !a.at.Before(from) && a.at.Before(to) {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}
