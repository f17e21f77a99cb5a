package faults

import (
	"strings"
	"syscall"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// lifeRows are the faults of the sidecar itself.
var lifeRows = []row{
	{id: "X25", fault: "the disk of the log is full", full: 10 * time.Second, run: func(x *trial) {
		x.begin = servers.StartUnreadSidecar
		x.startRedis()
		x.startSidecar("REDIS_URL="+x.redis.Addr, "LOG_LEVEL=debug", "LOG_DECISIONS=all")
		x.tagKeys()
		x.before = x.scrape()
		x.sick, x.began = x.before, time.Now()
		x.load.start()
		pass(x.length)
		x.ended, x.well = time.Now(), x.scrape()
		x.finish()
		x.common()
		x.keepsClosed()
		x.undisturbed("of a sidecar that cannot write its log", func(*answer) bool { return true })
		lost := x.grownSick("spillway_log_lines_lost_total")
		x.note("%d lines of the log lost", lost)
		if lost == 0 {
			x.fails("no line of the log was lost, or none was counted")
		}
		x.sidecar.Send(x, syscall.SIGTERM)
		if code := x.sidecar.Exit(x); code != 0 {
			x.fails("the sidecar ended with %d", code)
		}
	}},
	{id: "X27", fault: "kill -9 of the sidecar, ten times", full: time.Second, run: func(x *trial) {
		x.startRedis()
		var failed int64
		for range 10 {
			failed += x.live()
		}
		x.gather()
		x.keptPolicies()
		x.executedOnce(x.counters(), x.unknownAnswers()+failed)
		if _, store := x.worstSecond(); store > shareOf {
			x.fails("%d admitted by the store in one second, the limit is %d", store, shareOf)
		}
	}},
	{id: "X28", fault: "SIGTERM under load", short: time.Second, full: 2 * time.Second, run: func(x *trial) {
		x.start()
		x.began = time.Now()
		x.sidecar.Send(x, syscall.SIGTERM)
		code := x.sidecar.Exit(x)
		x.ended = time.Now()
		pass(100 * time.Millisecond)
		x.all = x.load.end()
		x.gather()
		x.seen.unknown = x.unknownAnswers()
		x.note("exit after %v", span(x.ended.Sub(x.began)))
		if code != 0 {
			x.fails("exit code %d, want 0", code)
		}
		if took := x.ended.Sub(x.began); took > 4*time.Second {
			x.misses("the end came after %v, at most 4 s", took)
		}
		x.reached()
		x.keptPolicies()
		// Each decision that was executed was answered.
		x.executedOnce(x.counters(), x.seen.unknown)
	}},
}

// live is one life of a sidecar under load, from its start to its kill. It returns how many calls got no answer.
func (x *trial) live() (failed int64) {
	x.Helper()
	servers.SidecarBin(x)
	begun := time.Now()
	x.startSidecar("REDIS_URL=" + x.redis.Addr)
	if ready := time.Since(begun); ready > 2*time.Second {
		x.misses("ready after %v, at most 2 s", ready)
	}
	if x.tags == nil {
		x.tagKeys()
	}
	x.load.start()
	pass(x.length)
	x.sidecar.End(x)
	answers := x.load.end()
	for i := range answers {
		if answers[i].err != nil {
			failed++
		}
	}
	x.all = append(x.all, answers...)
	return failed
}

// reached checks that no call failed that had reached the sidecar: those that did not could not connect.
func (x *trial) reached() {
	x.Helper()
	for i := range x.all {
		if err := x.all[i].err; err != nil && !strings.Contains(err.Error(), "connection refused") {
			x.fails("a call failed that had reached the sidecar: %v", err)
			return
		}
	}
}
