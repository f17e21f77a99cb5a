package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// What medians are taken of.
func perSecond(f figures) float64 { return f.PerSecond }
func redisCPU(f figures) float64  { return f.Redis }
func serverCPU(f figures) float64 { return f.Server }
func sumCPU(f figures) float64    { return f.Server + f.Redis }
func calls(f figures) float64     { return f.Calls }
func p50(f figures) float64       { return f.P50 }
func p95(f figures) float64       { return f.P95 }
func p99(f figures) float64       { return f.P99 }

// median is that of a figure over the rounds of a server, and NaN where it was not measured.
func (s *study) median(server string, of func(figures) float64) float64 {
	var values []float64
	for _, f := range s.Rounds[server] {
		values = append(values, of(f))
	}
	return median(values)
}

// servers are the names of those that were measured, in the order of tables.
func (s *study) servers() []string {
	var all []string
	for _, name := range []string{reference, unleased, unlimited, base, spillway} {
		if len(s.Rounds[name]) > 0 {
			all = append(all, name)
		}
	}
	return all
}

// columns are the figures of the tables.
var columns = []struct {
	head string
	of   func(figures) float64
	text func(float64) string
}{
	{"decisions/s", perSecond, number},
	{"server µs", serverCPU, number},
	{"Redis µs", redisCPU, number},
	{"load µs", func(f figures) float64 { return f.Load }, number},
	{"p50 ms", p50, number},
	{"p99 ms", p99, number},
	{"calls", calls, fine},
	{"commands", func(f figures) float64 { return f.Commands }, number},
	{"trips", func(f figures) float64 { return f.Trips }, number},
	{"script µs", func(f figures) float64 { return f.Script }, number},
	{"allocations", func(f figures) float64 { return f.Allocs }, number},
}

// tableOf has the medians of studies, a row for each server.
func tableOf(studies ...*study) table {
	t := table{head: []string{"case", "server"}, left: 2}
	for _, c := range columns {
		t.head = append(t.head, c.head)
	}
	t.head = append(t.head, "without Redis")
	for _, s := range studies {
		for _, server := range s.servers() {
			row := []string{s.Case.Name, server}
			for _, c := range columns {
				row = append(row, c.text(s.median(server, c.of)))
			}
			t.rows = append(t.rows, append(row, thousands(int64(s.withoutRedis(server)))))
		}
	}
	return t
}

// withoutRedis is the sum over all rounds.
func (s *study) withoutRedis(server string) float64 {
	return s.sum(server, func(f figures) float64 { return f.WithoutRedis })
}

// sum is that of a figure over all rounds of a server.
func (s *study) sum(server string, of func(figures) float64) float64 {
	sum := 0.0
	for _, f := range s.all(server) {
		sum += of(f)
	}
	return sum
}

// all are the rounds of a server, also those that others were run in place of.
func (s *study) all(server string) []figures {
	return slices.Concat(s.Rounds[server], s.Disturbed[server])
}

// wrongShare is how many answers of a round may be of the other kind: at the edge of a window one call is admitted.
const wrongShare = 0.001

// faults are the reasons for which a study is not a result. Decisions without Redis are what the part strain is about.
func (s *study) faults() []string {
	var all []string
	for _, server := range s.servers() {
		wrong, errors, decisions, first := 0, 0, 0.0, ""
		for _, f := range s.all(server) {
			errors += f.Errors
			wrong += f.Wrong
			decisions += f.Decisions
			if first == "" {
				first = f.FirstError
			}
		}
		about := fmt.Sprintf("NO RESULT: %s, %s, %s: ", s.Part, s.Case.Name, server)
		if n := s.withoutRedis(server); n > 0 && s.Part != "strain" {
			all = append(all, about+fmt.Sprintf("%s decisions were made without Redis", thousands(int64(n))))
		}
		if errors > 0 {
			all = append(all, about+fmt.Sprintf("%d calls failed, the first with %q", errors, first))
		}
		if float64(wrong) > wrongShare*decisions {
			all = append(all, about+fmt.Sprintf("%d answers of %.0f admit where they should refuse, or refuse where "+
				"they should admit", wrong, decisions))
		}
	}
	return all
}

// ratios is the table of the sidecar to another server, and of its calls. The goals are about the first server of a
// table.
func ratios(studies []*study, other string) table {
	t := table{head: []string{"case", "CPU of server + Redis", "goal", "Redis alone", "goal", "decisions per second",
		"goal", "calls per decision", "goal"}, left: 1}
	for _, s := range studies {
		if len(s.faults()) > 0 {
			t.rows = append(t.rows, []string{s.Case.Name, "no result", "", "no result", "", "no result", "",
				"no result", ""})
			continue
		}
		g := goal{-1, -1, -1, -1}
		if other == s.servers()[0] {
			g = s.goal()
		}
		t.rows = append(t.rows, []string{
			s.Case.Name, number(s.ratio(sumCPU, other)), atMost(g.CPU), number(s.redisRatio(other)), atMost(g.Redis),
			number(s.ratio(perSecond, other)), atLeast(g.PerSecond), fine(s.median(spillway, calls)), atMost(g.Calls),
		})
	}
	return t
}

// ratio is the median of the ratios of the sidecar to another server in each round. The turns of a round follow one
// another, so other programs disturb them alike.
func (s *study) ratio(of func(figures) float64, other string) float64 {
	var all []float64
	for i := range min(len(s.Rounds[spillway]), len(s.Rounds[other])) {
		all = append(all, ratio(of(s.Rounds[spillway][i]), of(s.Rounds[other][i])))
	}
	return median(all)
}

// redisRatio is that of Redis' processor time. It is 0 where the sidecar asked Redis nothing, and then it does not
// matter whether the reference server did.
func (s *study) redisRatio(other string) float64 {
	if s.median(spillway, func(f figures) float64 { return f.Commands }) < housekeeping {
		return 0
	}
	return s.ratio(redisCPU, other)
}

func atMost(g float64) string {
	switch {
	case g < 0:
		return ""
	case g == 0:
		return "0"
	}
	return fmt.Sprintf("≤ %.3g", g)
}

func atLeast(g float64) string {
	if g < 0 {
		return ""
	}
	return fmt.Sprintf("≥ %.3g", g)
}

// of are the studies of a part.
func of(studies []*study, part string) []*study {
	return slices.DeleteFunc(slices.Clone(studies), func(s *study) bool { return s.Part != part })
}

// compared are the studies of a part that have rounds of another server beside those of the sidecar, and whose ratios
// mean something.
func compared(studies []*study, part, other string) []*study {
	if part == "memory" || part == "strain" {
		return nil
	}
	return slices.DeleteFunc(of(studies, part), func(s *study) bool { return len(s.Rounds[other]) == 0 })
}

// finish prints the ratios and writes the files. It fails when a study is not a result.
func (s *session) finish(out io.Writer) error {
	for _, part := range parts {
		for _, other := range []string{reference, unleased, base} {
			if studies := compared(s.studies, part, other); len(studies) > 0 {
				fmt.Fprintf(out, "Ratios of %s to %s. %s:\n\n%s\n", spillway, other, titles[part],
					ratios(studies, other).terminal())
			}
		}
	}
	for _, part := range []string{"memory", "strain", "global", "envoy"} {
		if studies := of(s.studies, part); len(studies) > 0 {
			fmt.Fprintf(out, "%s\n\n%s\n", titles[part], tableFor(part, studies...).terminal())
		}
	}
	err := s.writePage(out)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Written: %s/RESULTS.md\n", s.set.Out)
	faulty := false
	for _, one := range s.studies {
		for _, line := range one.faults() {
			fmt.Fprintln(out, red(line))
			faulty = true
		}
	}
	if faulty {
		return errNoResult
	}
	return nil
}

// again is how many rounds were run in place of disturbed ones, and of how many.
func (s *session) again() (again, rounds int) {
	for _, one := range s.studies {
		server := one.servers()[0]
		again += len(one.Disturbed[server])
		rounds += len(one.Rounds[server])
	}
	return again, rounds
}

// others is the median share of the processors that other programs used.
func (s *session) others() float64 {
	var all []float64
	for _, one := range s.studies {
		for _, rounds := range one.Rounds {
			for _, f := range rounds {
				all = append(all, f.Others)
			}
		}
	}
	if m := median(all); !math.IsNaN(m) {
		return m
	}
	return 0
}
