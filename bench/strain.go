package main

import (
	"context"
	"fmt"
)

// Calls in flight of the cases of strain.
const (
	coldCallers = 256
	saturation  = 512
)

// busyLoops is how many programs use the processors in one of the cases.
const busyLoops = 2

// strainCases are those in which a sidecar may decide without Redis, which is there and well.
var strainCases = []testCase{
	{Name: "512 calls in flight", Short: "saturation", Work: cases[0].Work},
	{Name: "cold start, 256 callers", Short: "cold", Work: cases[0].Work},
	{Name: "64 calls in flight, two busy loops", Short: "busy", Work: cases[0].Work},
}

// strained is the load of such a case. On a cold start nothing is warm, by definition.
func (s *session) strained(c testCase) order {
	o := s.closed(c)
	switch c.Short {
	case "saturation":
		o.InFlight = saturation
	case "cold":
		o.InFlight, o.Warm = coldCallers, 0
	}
	return o
}

// strain is a turn of a server in such a case.
func (s *session) strain(ctx context.Context, c testCase, f *setup, o order) (figures, error) {
	switch c.Short {
	case "cold":
		f.stop()
		err := f.start(ctx)
		if err != nil {
			return figures{}, err
		}
	case "busy":
		for i := range busyLoops {
			loop, err := startProcess(s.folder, fmt.Sprintf("loop-%d", i+1), "/bin/sh", nil, "-c",
				"while :; do :; done")
			if err != nil {
				return figures{}, err
			}
			defer loop.stop()
		}
	}
	return measure(ctx, f, o)
}

// strainTable has the decisions that were made without Redis, a row for each server. They are those of all rounds
// together.
func strainTable(studies ...*study) table {
	t := table{head: []string{"case", "server", "decisions/s", "p50 ms", "p99 ms", "decisions", "without Redis",
		"per million"}, left: 2}
	for _, s := range studies {
		for _, server := range s.servers() {
			all, without := s.sum(server, func(f figures) float64 { return f.Decisions }), s.withoutRedis(server)
			t.rows = append(t.rows, []string{
				s.Case.Name, server, number(s.median(server, perSecond)),
				number(s.median(server, p50)), number(s.median(server, p99)), thousands(int64(all)),
				thousands(int64(without)),
				number(1e6 * ratio(without, all)),
			})
		}
	}
	return t
}
