package faults

import (
	"maps"
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// sliceOf is how long the sidecar has a processor, and then has none.
const sliceOf = 50 * time.Millisecond

var (
	passing = 2 * rate // decisions per second that pass the narrow network
	surplus = 3 * rate // calls per second on top of the load: together twice as many
	decides = rate / 2 // per second that are decided by the store at least
)

// pressureRows have a Redis that is well, and too little of something else.
var pressureRows = []row{
	{id: "X33", fault: "no processor for 50 of every 100 ms", full: time.Minute, run: func(x *trial) {
		x.start()
		x.during(x.halt())
		x.common()
		x.keepsClosed()
		x.note("without the store %v", x.reasons(0))
		if part := x.degradedPart(); part > 0.01 {
			x.misses("%.2f %% of the answers were degraded, at most 1 %%", 100*part)
		}
	}},
	{id: "X34", fault: "twice the calls that Redis answers in time", full: 30 * time.Second, run: func(x *trial) {
		x.startBehindProxy()
		x.narrow(passing)
		x.awaitHealth()
		enough := make(chan struct{})
		x.during(func() { x.load.flow(surplus, enough) }, func() { close(enough) })
		x.common()
		x.keepsClosed()
		x.shed()
	}},
}

// halt takes the processor from the sidecar and gives it back in turn: SIGSTOP needs no rights and works on every
// machine.
func (x *trial) halt() (begin, repair func()) {
	pid := x.sidecar.Process.Process.Pid
	done, ended := make(chan struct{}), make(chan struct{})
	begin = func() {
		go func() {
			defer close(ended)
			tick := time.NewTicker(sliceOf)
			defer tick.Stop()
			for n := 0; ; n++ {
				syscall.Kill(pid, []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT}[n%2])
				select {
				case <-done:
					syscall.Kill(pid, syscall.SIGCONT)
					return
				case <-tick.C:
				}
			}
		}()
	}
	return begin, func() { close(done); <-ended }
}

// narrow lets the proxy pass so many decisions per second, by the bytes that one takes under the load.
func (x *trial) narrow(perSecond int) {
	x.Helper()
	bytes, answers := x.proxy.Carried(), x.load.answered()
	pass(time.Second)
	bytes, answers = x.proxy.Carried()-bytes, x.load.answered()-answers
	if answers == 0 {
		x.Fatal("no answers before the network gets narrow")
	}
	const delay = 2 * time.Millisecond
	part := int(bytes) * perSecond / int(answers) * int(delay) / int(time.Second)
	x.note("%d bytes each decision", bytes/answers)
	x.proxy.Set(servers.Fault{Mode: servers.Narrow, Bytes: max(1, part), Delay: delay})
}

// reasons counts the answers that the store did not decide, by reason, among those sent from so long after the fault's
// begin to its end.
func (x *trial) reasons(after time.Duration) map[string]int {
	counts := map[string]int{}
	for i := range x.all {
		a := &x.all[i]
		if a.degraded != "" && a.at.Sub(x.began) >= after && a.at.Before(x.ended) {
			counts[a.degraded]++
		}
	}
	return counts
}

// shed checks that calls beyond what the store answers in time are decided without it for that reason alone, and the
// others by it.
func (x *trial) shed() {
	x.Helper()
	const overload = "overload"
	x.note("without the store %v", x.reasons(0))
	var all, answers, decided int64
	for i := range x.all {
		a := &x.all[i]
		if a.degraded == overload {
			all++
		}
		if a.at.Before(x.began) || a.at.After(x.ended) {
			continue
		}
		answers++
		if a.counted() {
			decided++
		}
	}
	n := x.grown("spillway_degraded_decisions_total", `reason="overload"`)
	if n == 0 {
		x.misses("no call was beyond what the store answers in time")
	}
	if n != all {
		x.fails("%d decisions were counted under the reason overload, and %d answers say so", n, all)
	}
	if least := int64(decides) * int64(x.length/time.Second); decided < least {
		x.misses("the store decided %d of %d calls, at least %d", decided, answers, least)
	}
	others := x.reasons(500 * time.Millisecond)
	maps.DeleteFunc(others, func(reason string, _ int) bool { return reason == overload })
	var rest int64
	for count := range maps.Values(others) {
		rest += int64(count)
	}
	if rest > answers/100 {
		x.misses("%d of %d calls were decided without the store for another reason than overload, at most 1 %%: %v",
			rest, answers, others)
	}
}
