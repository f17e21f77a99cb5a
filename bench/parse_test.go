package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

const info = "# Stats\r\ntotal_connections_received:6\r\ntotal_commands_processed:1007\r\n" +
	"total_reads_processed:305\r\n" +
	"# Commandstats\r\ncmdstat_info:calls=2,usec=180,usec_per_call=90.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_evalsha:calls=500,usec=14000,usec_per_call=28.00,rejected_calls=0,failed_calls=1\r\n" +
	"cmdstat_fcall:calls=10,usec=100,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_client|setinfo:calls=4,usec=8,usec_per_call=2.00,rejected_calls=0,failed_calls=0\r\n"

func TestInfoIsRead(t *testing.T) {
	got, err := parseInfo(info)
	want := redisCounts{Commands: 1007, Reads: 305, Scripts: commandCount{Calls: 510, Micros: 14100}}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "total_commands_processed:5\r\n",
		"total_commands_processed:x\r\ntotal_reads_processed:1\r\n", info + "cmdstat_eval:calls=x\r\n"} {
		_, err := parseInfo(bad)
		if err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestMachineTimeIsRead(t *testing.T) {
	got, err := parseMachine("cpu  10 20 30 400 50 6 7 8 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
	want := machine{busy: (10 + 20 + 30 + 6 + 7 + 8) * tick, all: (10 + 20 + 30 + 400 + 50 + 6 + 7 + 8) * tick}
	if err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu0 1 2 3 4 5 6 7 8 9 0\n", "cpu 1 2 3\n", "cpu a 2 3 4 5 6 7 8\n"} {
		_, err := parseMachine(bad)
		if err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestProcessTimeIsThatOfTheProcess(t *testing.T) {
	// Time in the kernel counts, too: there is some after enough system calls.
	for used := (syscall.Rusage{}); used.Stime.Nano() < int64(5*tick); {
		must.Get(os.ReadFile("/proc/self/stat"))(t)
		must.Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	}
	before := cpuOfThisProcess()
	got, err := cpuOf(os.Getpid())
	after := cpuOfThisProcess()
	if err != nil || got < before-tick || got > after+tick {
		t.Errorf("got %v, %v, want %v to %v", got, err, before, after)
	}
	_, err = cpuOf(1<<22 + 1)
	if err == nil {
		t.Error("no error for a process that is not there")
	}
}

func TestMetricsAreAddedUp(t *testing.T) {
	const text = "# TYPE spillway_degraded_decisions_total counter\n" +
		`spillway_degraded_decisions_total{domain="a",reason="timeout",rule="{x} y"} 3` + "\n" +
		`spillway_degraded_decisions_total{domain="b",reason="breaker",rule=""} 4` + "\n" +
		"spillway_degraded_decisions_total_more 100\n" +
		"go_memstats_mallocs_total 1.5e+06\n"
	if got, found := sumMetric(text, "spillway_degraded_decisions_total"); got != 7 || !found {
		t.Errorf("got %v, %v, want 7", got, found)
	}
	if got, found := sumMetric(text, "go_memstats_mallocs_total"); got != 1.5e6 || !found {
		t.Errorf("got %v, %v, want 1.5e6", got, found)
	}
	if _, found := sumMetric(text, "spillway_degraded"); found {
		t.Error("the beginning of a name is taken for a metric")
	}
}

func TestMetricsOfASidecarAreRead(t *testing.T) {
	got, err := parseMetrics("go_memstats_mallocs_total 10\nspillway_degraded_decisions_total{rule=\"a\"} 2\n")
	if want := (self{Allocations: 10, WithoutRedis: 2}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := parseMetrics("spillway_redis_trips_total 7\n"); err == nil {
		t.Error("no error without a count of allocations")
	}
}

func TestStatsOfTheReferenceServerAreRead(t *testing.T) {
	got, err := parseStats("cmdline: [\"x\"]\nmemstats: {\"Alloc\":1,\"Mallocs\":123}\n")
	if err != nil || got.Allocations != 123 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "cmdline: []\n", "memstats: {\"Alloc\":1}\n", "memstats: x\n"} {
		_, err := parseStats(bad)
		if err == nil {
			t.Errorf("no error for %q", bad)
		}
	}
}

func TestFiguresAreThoseBetweenTwoMoments(t *testing.T) {
	before := counters{server: time.Second, redis: time.Second,
		machine: machine{busy: time.Second, all: 10 * time.Second}, counts: redisCounts{Commands: 100, Reads: 50}}
	after := counters{
		server: 2 * time.Second, redis: 1100 * time.Millisecond, machine: machine{busy: 3500 * time.Millisecond,
			all: 14 * time.Second},
		counts: redisCounts{Commands: 100 + 40_001, Reads: 50 + 2_001, Scripts: commandCount{10_000, 90_000}},
	}
	got := figuresOf(before, after, outcome{Decisions: 10_000, Elapsed: 2 * time.Second, CPU: 400 * time.Millisecond,
		P50: 3 * time.Millisecond, P99: 7 * time.Millisecond})
	want := figures{Decisions: 10_000, PerSecond: 5000, Server: 100, Redis: 10, Load: 40, P50: 3, P99: 7, Commands: 4,
		Trips: 0.2, Calls: 1, Script: 9, Others: 0.25}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestPaceSendsEveryCallOnce(t *testing.T) {
	var last time.Time
	n := 0
	pace(context.Background(), 10_000, 10*time.Millisecond, func(at time.Time) {
		if gap := at.Sub(last); n > 0 && (gap < 99*time.Microsecond || gap > 101*time.Microsecond) {
			t.Errorf("call %d is due %v after the one before", n, gap)
		}
		last = at
		n++
	})
	if n != 100 {
		t.Errorf("%d calls, want 100", n)
	}
}
