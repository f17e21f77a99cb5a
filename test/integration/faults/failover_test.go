package faults

import (
	"context"
	"slices"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	// scarceOf is what a key of domain scarce may spend in the whole run. Each is asked five times a second, so it is
	// spent while the fault lasts.
	scarceOf   = 12
	scarceKeys = 20
)

// scarcity is a second load on keys that are soon spent: what a failover forgets shows as more than their limit.
type scarcity struct {
	mu      sync.Mutex // guards answers
	answers []answer
}

// exhaust begins to ask the scarce keys; the end of the load is its end, too.
func (x *trial) exhaust() *scarcity {
	x.Helper()
	s := &scarcity{}
	x.load.running.Go(func() {
		tick := time.NewTicker(time.Second / (5 * scarceKeys))
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-x.load.stop:
				return
			case <-tick.C:
			}
			x.load.running.Go(func() { s.ask(x.load, keys+n%scarceKeys) })
		}
	})
	pass(time.Second) // so that something is spent when the fault begins
	return s
}

func (s *scarcity) ask(l *load, key int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a := l.ask(ctx, key, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, a)
}

// kept checks that no key was admitted more often than its limit allows, that once more for each master that was
// replaced, and once more on the only sidecar's share, which is the whole limit.
func (s *scarcity) kept(x *trial, failovers int) {
	x.Helper()
	admitted := map[int]int{}
	most, unanswered := 0, 0
	for _, a := range s.answers {
		if a.err != nil || a.zero {
			unanswered++
		}
		if a.degraded != "" {
			x.seen.degraded++
		}
		if a.err == nil && a.code == ratelimitv3.RateLimitResponse_OK {
			admitted[a.key]++
			most = max(most, admitted[a.key])
		}
	}
	x.note("at most %d admitted of %d", most, scarceOf)
	if unanswered > 0 {
		x.fails("%d requests for scarce keys got no answer", unanswered)
	}
	if most > scarceOf*(2+failovers) {
		x.fails("a key was admitted %d times, its limit is %d and there were %d failovers", most, scarceOf, failovers)
	}
	if most < scarceOf {
		x.fails("no key was admitted more than %d times, so its limit of %d proves nothing", most, scarceOf)
	}
}

// replaced is the common bar of a row in which a new master takes over the keys that loses returns: of them it may not
// know what the old one acknowledged last, which is at most a burst.
func (x *trial) replaced(s *scarcity, failovers int, loses func(key int) bool) {
	x.Helper()
	s.kept(x, failovers)
	x.answered()
	x.keptPolicies()
	local, store := x.worstSecond()
	if most := shareOf * (1 + failovers); local > shareOf || store > most {
		x.fails("%d admitted locally and %d by the store in one second, at most %d and %d", local, store, shareOf, most)
	}
	if n := x.grown("spillway_degraded_decisions_total"); n != x.seen.degraded {
		x.fails("%d degraded decisions counted, %d answers say so", n, x.seen.degraded)
	}
	used, lost := x.forgive(loses)
	x.executedOnce(used, x.seen.unknown+x.lateReplies())
	x.seen.applied -= lost
	x.note("%d acknowledged charges lost", lost)
}

// forgive is what the keys have used as if a new master had lost nothing, and how much it has.
func (x *trial) forgive(loses func(key int) bool) (used map[int]int64, lost int64) {
	x.Helper()
	used = x.counters()
	decided := map[int]int64{}
	for i := range x.all {
		if a := &x.all[i]; a.counted() {
			decided[a.key]++
		}
	}
	for key := range keys {
		missing := x.tags[key] + decided[key] - used[key]
		if missing > 0 && domainOf(key) != "share" && loses(key) {
			used[key] += missing
			lost += missing
		}
	}
	return used, lost
}

// all is every key.
func all(int) bool { return true }

// recovers checks that nothing was decided without the store from some time after the fault on.
func (x *trial) recovers(within time.Duration) {
	x.Helper()
	_, last := x.degradedSpan()
	took := last.Sub(x.began)
	if last.IsZero() {
		x.note("never degraded")
		return
	}
	x.note("recovered after %v", span(took))
	if took > within {
		x.misses("the last degraded answer came %v after the fault, at most %v", span(took), within)
	}
	if x.seen.closed > 100*time.Millisecond {
		x.misses("a breaker was not closed %v after the end of the fault", span(x.seen.closed))
	}
}

// degradedSpan is when the first degraded answer since the fault began was asked for, and the last.
func (x *trial) degradedSpan() (first, last time.Time) {
	for i := range x.all {
		a := &x.all[i]
		if a.degraded == "" || a.at.Before(x.began) {
			continue
		}
		if first.IsZero() {
			first = a.at
		}
		first, last = earlier(first, a.at), later(last, a.at)
	}
	return first, last
}

// stallReasons are what calls meet when the machine stalls: they miss their budget, come back all at once, and the
// breaker opens. Every other reason is about the servers.
var stallReasons = []string{"timeout", "breaker", "pool", "overload"}

// undisturbed checks that the store decided all answers that are meant, since the fault began.
func (x *trial) undisturbed(what string, meant func(a *answer) bool) {
	x.Helper()
	late, reasons := 0, map[string]int{}
	for i := range x.all {
		switch a := &x.all[i]; {
		case a.degraded == "" || a.at.Before(x.began) || !meant(a):
		case slices.Contains(stallReasons, a.degraded):
			late++
		default:
			reasons[a.degraded]++
		}
	}
	if late > 0 {
		x.misses("%d answers %s were degraded because calls took too long", late, what)
	}
	if len(reasons) > 0 {
		x.fails("answers %s were degraded: %v", what, reasons)
	}
}

// straight is a client to one server, past the sidecar.
func (x *trial) straight(r *servers.Redis) *redis.Client {
	x.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1, PoolSize: 1})
	x.Cleanup(func() { client.Close() })
	return client
}
