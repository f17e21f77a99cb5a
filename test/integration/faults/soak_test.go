//go:build full

package faults

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	soakRounds   = 10                     // faults of a long soak, each followed by a time of health
	soakRound    = 10 * time.Second       // of one without SOAK
	heapGrowth   = int64(4 << 20)         // bytes that the heap may grow from the first round to the last
	heldGrowth   = int64(5)               // files, goroutines
	secondBorder = 20 * time.Millisecond  // that Redis and the callers may differ about when a second begins
	backlog      = 250 * time.Millisecond // after a fault, for the calls that waited in Redis for its end

	hangingUp = "callers that hang up"
)

// soakFaults are what happens in the rounds of a soak, one after the other.
var soakFaults = []struct {
	name          string
	begin, repair func(x *trial)
}{
	{"kill -9", func(x *trial) { x.redis.Kill(x) }, func(x *trial) { x.redis.Start(x) }},
	{"late replies", throughProxy(servers.Fault{Mode: servers.Latency, Delay: time.Second}), wellProxy},
	{"SIGSTOP", func(x *trial) { x.redis.Hang(x) }, func(x *trial) { x.signal(syscall.SIGCONT) }},
	{"resets", throughProxy(servers.Fault{Mode: servers.ResetReplies, Share: 0.1}), wellProxy},
	{"a black hole", throughProxy(servers.Fault{Mode: servers.BlackHole}), func(x *trial) {
		wellProxy(x)
		x.proxy.Sever()
	}},
	{"lost replies", throughProxy(servers.Fault{Mode: servers.DropReplies, Share: 0.05}), wellProxy},
	{"no scripts", func(x *trial) { x.admin.ScriptFlush(x.Context()) }, func(*trial) {}},
	{"cut connections", func(x *trial) { x.proxy.Sever() }, func(*trial) {}},
	{"out of memory", func(x *trial) {
		x.admin.ConfigSet(x.Context(), "maxmemory", "1")
	}, func(x *trial) { x.admin.ConfigSet(x.Context(), "maxmemory", "0") }},
	{hangingUp, func(x *trial) {
		x.load.cancelAfter.Store(int64(time.Millisecond))
	}, func(x *trial) { x.load.cancelAfter.Store(0) }},
}

func throughProxy(f servers.Fault) func(x *trial) { return func(x *trial) { x.proxy.Set(f) } }

func wellProxy(x *trial) { x.proxy.Set(servers.Fault{}) }

func (x *trial) signal(s syscall.Signal) {
	x.Helper()
	err := x.redis.Signal(s)
	if err != nil {
		x.Fatalf("signal redis: %v", err)
	}
}

// TestSoak lets one fault after the other happen under load. In the end nothing has piled up, and no decision was
// wrong. SOAK is how long that takes.
func TestSoak(t *testing.T) {
	round := soakRound
	if text := os.Getenv("SOAK"); text != "" {
		whole, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SOAK must be a duration: %v", err)
		}
		round = whole / soakRounds
	}
	whole := round * soakRounds
	try(t, row{id: "soak", fault: fmt.Sprintf("%d faults in %v", soakRounds, whole), full: whole, run: func(x *trial) {
		soaked(x, round, soakRounds)
	}}, true)
}

// soak is a trial with one fault after the other.
type soak struct {
	*trial
	lasted     time.Duration // the longest fault
	cancelling []time.Time   // begin and end of the round in which callers hang up; empty: there was none
	held       []usage       // after each round
}

// soaked is that many rounds, and the bounds on them.
func soaked(x *trial, round time.Duration, rounds int) {
	s := &soak{trial: x}
	x.startBehindProxy()
	x.began = time.Now()
	for i := range rounds {
		s.once(i*len(soakFaults)/rounds%len(soakFaults), round)
		s.held = append(s.held, x.usage())
	}
	x.ended = time.Now()
	x.finish()
	gone := s.answeredUnlessGone()
	x.keptPolicies()
	x.keptShare()
	x.foresaw(s.lasted + backlog)
	// A caller that hangs up does not get the store's decision.
	x.executedOnce(x.counters(), x.seen.unknown+x.lateReplies()+gone)
	s.keptUsage()
}

// once is one round: a fault for a third of it, then health.
func (s *soak) once(n int, round time.Duration) {
	s.Helper()
	f := soakFaults[n]
	begun := time.Now()
	f.begin(s.trial)
	pass(round / 3)
	f.repair(s.trial)
	s.lasted = max(s.lasted, time.Since(begun))
	pass(round - round/3)
	s.awaitHealth()
	if f.name == hangingUp {
		s.cancelling = []time.Time{begun, time.Now()}
	}
	s.Logf("%v since the start: %s is over", time.Since(s.began).Round(time.Second), f.name)
}

// usage is what the sidecar holds at one time.
type usage struct{ heap, fds, goroutines int64 }

// usage looks at the sidecar after a garbage collection. Of files and goroutines it takes the fewest of a second:
// calls under way have some, and go.
func (x *trial) usage() usage {
	x.Helper()
	r, err := http.Get("http://" + x.sidecar.Debug + "/debug/pprof/heap?gc=1")
	if err != nil {
		x.Fatalf("collect the sidecar's garbage: %v", err)
	}
	r.Body.Close()
	h := usage{heap: x.scrape().sum("go_memstats_heap_alloc_bytes")}
	h.fds, h.goroutines = x.held()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < time.Second; <-tick.C {
		fds, goroutines := x.held()
		h.fds, h.goroutines = min(h.fds, fds), min(h.goroutines, goroutines)
	}
	return h
}

// keptUsage checks that the sidecar holds in the end what it held after the first round: by then every key has been
// seen.
func (s *soak) keptUsage() {
	s.Helper()
	first, last := s.held[0], s.held[len(s.held)-1]
	s.note("heap %d, then %d KiB; files %d, %d; goroutines %d, %d", first.heap>>10, last.heap>>10, first.fds, last.fds,
		first.goroutines, last.goroutines)
	if last.heap-first.heap > heapGrowth {
		s.misses("the heap grew from %d to %d bytes: %v", first.heap, last.heap, s.held)
	}
	if last.fds-first.fds > heldGrowth || last.goroutines-first.goroutines > heldGrowth {
		s.misses("files or goroutines piled up: %v", s.held)
	}
}

// answeredUnlessGone is answered for all callers but those that hung up in their round. It returns how many did.
func (s *soak) answeredUnlessGone() (gone int64) {
	s.Helper()
	all := s.all
	s.all = slices.DeleteFunc(slices.Clone(all), s.hungUp)
	gone = int64(len(all) - len(s.all))
	s.note("%d callers hung up", gone)
	s.answered()
	s.all = all
	return gone
}

// hungUp is whether a caller did not wait for its answer, in the round in which they have to.
func (s *soak) hungUp(a answer) bool {
	return status.Code(a.err) == codes.Canceled && len(s.cancelling) > 0 && !a.at.Before(s.cancelling[0]) &&
		!a.at.After(s.cancelling[1])
}

// foresaw is the oracle of the keys of domain share: it knows of each second what was admitted in it, for sure or
// perhaps. The store may refuse only when all of that spends the limit. A call that was lost may have run that much
// later: as long as a fault lasts.
func (x *trial) foresaw(lost time.Duration) {
	x.Helper()
	type second struct {
		key int
		at  int64
	}
	perhaps, refused := map[second]int{}, map[second]bool{}
	for i := range x.all {
		a := &x.all[i]
		if domainOf(a.key) != "share" {
			continue
		}
		from, to := a.at.Add(-secondBorder).Unix(), a.at.Add(a.took+secondBorder).Unix()
		if a.counted() && a.code == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			if from == to {
				refused[second{a.key, from}] = true
			}
			continue
		}
		switch {
		case slices.Contains(unknownReasons, a.degraded):
			to = a.at.Add(lost).Unix()
		case a.degraded != "":
			continue // it is not charged to the store
		}
		for at := from; at <= to; at++ {
			perhaps[second{a.key, at}]++
		}
	}
	wrong := 0
	for s := range refused {
		if perhaps[s] < shareOf {
			wrong++
		}
	}
	x.note("%d refusals foreseen", len(refused))
	if wrong > 0 || len(refused) == 0 {
		x.fails("%d of %d refusals of the store came before the limit was spent", wrong, len(refused))
	}
}
