package main

import "math"

// share is processor time in percent of one core, for a time per decision.
func share(micros func(figures) float64) func(figures) float64 {
	return func(f figures) float64 { return micros(f) * f.PerSecond / 1e6 * 100 }
}

// tableFor is the table that a part has for its studies.
func tableFor(part string, studies ...*study) table {
	switch part {
	case "global":
		return globalTable(studies...)
	case "memory":
		return memoryTable(studies...)
	case "strain":
		return strainTable(studies...)
	case "envoy":
		return envoyTable(studies...)
	}
	return tableOf(studies...)
}

// globalTable has what a global limit costs: shares of one core, in percent. Redis has a goal where the limit is.
func globalTable(studies ...*study) table {
	t := table{head: []string{"case", "calls due/s", "decisions/s", "Redis %", "goal", "sidecars %", "load generator %",
		"refusals", "calls", "without Redis"}, left: 1}
	for _, s := range studies {
		due, goal := "–", ""
		if rate := s.median(spillway, func(f figures) float64 { return f.Rate }); rate > 0 {
			due = number(math.Round(rate))
		}
		if s.Case.Short == globalCase.Short {
			goal = atMost(globalShare)
		}
		redis := number(s.median(spillway, share(redisCPU)))
		if len(s.faults()) > 0 {
			redis, goal = "no result", ""
		}
		t.rows = append(t.rows, []string{
			s.Case.Name, due, number(s.median(spillway, perSecond)), redis, goal,
			number(s.median(spillway, share(serverCPU))),
			number(s.median(spillway, share(func(f figures) float64 { return f.Load }))),
			thousands(int64(s.sum(spillway, func(f figures) float64 {
				return f.Refused
			}))),
			fine(s.median(spillway, calls)), thousands(int64(s.withoutRedis(spillway))),
		})
	}
	return t
}
