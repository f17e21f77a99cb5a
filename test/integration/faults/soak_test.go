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

	"github.com/spillway-mesh/spillway/test/servers"
)

const (
	soakRounds   = 10                    // faults of a long soak, each followed by a time of health
	soakInTests  = 2                     // faults of the one that runs with the other tests, one of each half of the list
	soakRound    = 4 * time.Second       // of that one
	heapGrowth   = int64(4 << 20)        // bytes that the heap may grow from the first round to the last
	heldGrowth   = int64(5)              // files, goroutines
	secondBorder = 20 * time.Millisecond // that Redis and the callers may differ about when a second begins
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
	{"a black hole", throughProxy(servers.Fault{Mode: servers.BlackHole}), func(x *trial) { wellProxy(x); x.proxy.Sever() }},
	{"lost replies", throughProxy(servers.Fault{Mode: servers.DropReplies, Share: 0.05}), wellProxy},
	{"no scripts", func(x *trial) { x.admin.ScriptFlush(x.Context()) }, func(*trial) {}},
	{"cut connections", func(x *trial) { x.proxy.Sever() }, func(*trial) {}},
	{"out of memory", func(x *trial) { x.admin.ConfigSet(x.Context(), "maxmemory", "1") }, func(x *trial) { x.admin.ConfigSet(x.Context(), "maxmemory", "0") }},
	{"callers that hang up", func(x *trial) { x.load.cancelAfter.Store(int64(time.Millisecond)) }, func(x *trial) { x.load.cancelAfter.Store(0) }},
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

// TestSoak lets one fault after the other happen under load. In the end nothing has piled up, and no decision was wrong. SOAK says
// for how long; without it a short one runs.
func TestSoak(t *testing.T) {
	round, rounds := soakRound, soakInTests
	if text := os.Getenv("SOAK"); text != "" {
		whole, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SOAK is no duration: %v", err)
		}
		round, rounds = whole/soakRounds, soakRounds
	}
	x := &trial{T: t, row: row{id: "soak", fault: fmt.Sprintf("%d faults in %v", rounds, round*time.Duration(rounds))}, length: round * time.Duration(rounds)}
	x.startBehindProxy()
	x.began = time.Now()
	held := []holding{x.holding()}
	for i := range rounds {
		x.soakOnce(i*len(soakFaults)/rounds%len(soakFaults), round)
		held = append(held, x.holding())
	}
	x.ended = time.Now()
	x.finish()
	x.answeredUnlessGone()
	x.keptPolicies()
	x.keptShare()
	x.foresaw(round)
	// A caller that hangs up does not hear what the store decided for it.
	x.executedOnce(x.counters(), x.seen.unknown+x.hungUp())
	x.keptHolding(held)
	x.write(true)
}

// soakOnce is one round: a fault for a third of it, then health.
func (x *trial) soakOnce(n int, round time.Duration) {
	x.Helper()
	f := soakFaults[n]
	f.begin(x)
	pass(round / 3)
	f.repair(x)
	pass(round - round/3)
	x.awaitHealth()
	x.Logf("%v since the start: %s is over", time.Since(x.began).Round(time.Second), f.name)
}

// holding is what the sidecar holds at one moment.
type holding struct{ heap, fds, goroutines int64 }

// holding looks at the sidecar after a garbage collection.
func (x *trial) holding() holding {
	x.Helper()
	r, err := http.Get("http://" + x.sidecar.Debug + "/debug/pprof/heap?gc=1")
	if err != nil {
		x.Fatalf("collect the sidecar's garbage: %v", err)
	}
	r.Body.Close()
	fds, goroutines := x.held()
	return holding{x.scrape().sum("go_memstats_heap_alloc_bytes"), fds, goroutines}
}

// keptHolding checks that the sidecar holds in the end what it held after the first round: by then every key has been seen.
func (x *trial) keptHolding(all []holding) {
	x.Helper()
	first, last := all[1], all[len(all)-1]
	x.note("heap %d, then %d KiB; files %d, %d; goroutines %d, %d", first.heap>>10, last.heap>>10, first.fds, last.fds, first.goroutines, last.goroutines)
	if last.heap-first.heap > heapGrowth {
		x.misses("the heap grew from %d to %d bytes: %v", first.heap, last.heap, all)
	}
	if last.fds-first.fds > heldGrowth || last.goroutines-first.goroutines > heldGrowth {
		x.misses("files or goroutines piled up: %v", all)
	}
}

// answeredUnlessGone is answered for a load some of whose callers hang up.
func (x *trial) answeredUnlessGone() {
	x.Helper()
	stayed := x.all
	x.all = slices.DeleteFunc(slices.Clone(stayed), func(a answer) bool { return a.err != nil && a.took < patience/2 })
	x.answered()
	x.all = stayed
}

// hungUp is how many callers did not wait for their answer.
func (x *trial) hungUp() (n int64) {
	for i := range x.all {
		if x.all[i].err != nil {
			n++
		}
	}
	x.note("%d callers hung up", n)
	return n
}

// foresaw is the oracle of the keys of domain share: it knows of each second what was admitted in it, for sure or perhaps. The store
// may refuse only when all of that spends the limit. A call that was lost may have run as long as a fault lasts later.
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
			to++ // it is charged to the store within its window, which may take a moment
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
