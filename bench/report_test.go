package main

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is a study in which the sidecar takes half of the reference server's time.
func sample(part string, c testCase) *study {
	one := figures{Decisions: 30_000, PerSecond: 15_000, Server: 80, Redis: 10, Load: 25, P50: 3.6, P99: 12,
		Commands: 2, Trips: 0.65, Script: math.NaN(), Calls: math.NaN(), Allocs: 190}
	two := figures{Decisions: 60_000, PerSecond: 30_000, Server: 35, Redis: 10, Load: 25, P50: 1.8, P99: 6, Commands: 4,
		Trips: 0.2, Script: 8.5, Calls: 0.0153, Allocs: 60}
	return &study{Part: part, Case: c, Rounds: map[string][]figures{reference: {one, one, one},
		spillway: {two, two, two}}}
}

func samples() []*study {
	var all []*study
	for _, c := range cases {
		all = append(all, sample("closed", c))
	}
	return append(all, sample("open", cases[0]), sample("four", cases[0]), sample("four", cases[2]),
		leaseSample(cases[0]), leaseSample(cases[2]),
		envoySample(), alone(sample("global", capacityCase)), alone(sample("global", globalCase)))
}

// baseSamples are studies of a run with a base, which takes a fifth more than the sidecar.
func baseSamples() []*study {
	all := []*study{sample("closed", cases[0]), alone(sample("rules", ruleCases(keys)[0])),
		alone(sample("memory", ruleCases(memoryKeys)[0])), alone(sample("strain", strainCases[1]))}
	for _, s := range all {
		for i, f := range s.Rounds[spillway] {
			if s.Part == "strain" {
				s.Rounds[spillway][i].WithoutRedis = 7
			}
			if s.Part == "memory" {
				s.Rounds[spillway][i] = figures{Counter: 164.9, Key: 104}
			}
			f.Server, f.Counter, f.Key = 44, 181.6, 120
			s.Rounds[base] = append(s.Rounds[base], f)
		}
	}
	return all
}

// envoySample is a study in which the limit adds a millisecond to the median.
func envoySample() *study {
	s := alone(sample("envoy", envoyCase))
	for i, f := range s.Rounds[spillway] {
		f.P50, f.P95, f.P99 = 0.8, 2.1, 4.5
		s.Rounds[unlimited] = append(s.Rounds[unlimited], f)
		s.Rounds[spillway][i].P95 = 5
		s.Rounds[spillway][i].P99 = 10.2
	}
	return s
}

// leaseSample is a study of the sidecar without leases and with them.
func leaseSample(c testCase) *study {
	s := alone(sample("leases", c))
	for _, f := range s.Rounds[spillway] {
		f.Server, f.Calls = 55, 1
		s.Rounds[unleased] = append(s.Rounds[unleased], f)
	}
	return s
}

// alone is a study of the sidecar only. With an open loop it has a rate.
func alone(s *study) *study {
	delete(s.Rounds, reference)
	for i := range s.Rounds[spillway] {
		if s.Case.Short == globalCase.Short {
			s.Rounds[spillway][i].Rate = 30_000.4
		}
	}
	return s
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if got != string(want) {
		t.Errorf("%s differs (go test ./bench -update writes it anew); got:\n%s", file, got)
	}
}

var here = surroundings{
	Cores: 2, Processor: "Some Processor", Redis: "7.0.15", Rounds: 3, Seconds: 2,
	Sidecar: build{"go1.26", "v1", "v1.85.0"}, Reference: build{"go1.26", "v1.4.1", "v1.74.2"},
}

func TestPage(t *testing.T) {
	golden(t, "page.golden", page(here, samples()))
}

func TestPageOfARunWithABase(t *testing.T) {
	with := here
	with.Base = "old/sidecar"
	golden(t, "base-page.golden", page(with, baseSamples()))
}

func TestPageOfARunThatIsNoResult(t *testing.T) {
	studies := samples()
	studies[0].Rounds[spillway][1].WithoutRedis = 123
	studies[1].Rounds[reference][0].Errors, studies[1].Rounds[reference][0].FirstError = 2, "gone"
	studies[2].Rounds[spillway][2].Wrong = 5000
	with := here
	with.Others, with.Again, with.All, with.SidecarEnv = 0.3, 7, 20, []string{"STORE_PATIENCE=500ms"}
	studies[len(studies)-1].Rounds[spillway][0].Wrong, studies[len(studies)-1].Rounds[spillway][0].Refused = 400, 400
	golden(t, "bad-page.golden", page(with, studies))
}

func TestTerminalTable(t *testing.T) {
	golden(t, "terminal.golden", tableOf(samples()[:2]...).terminal()+"\n"+ratios(samples()[:2], reference).terminal())
}

func TestRatiosAreWithheldFromWhatIsNoResult(t *testing.T) {
	s := sample("closed", cases[0])
	s.Rounds[spillway][2].WithoutRedis = 1
	row := strings.Join(ratios([]*study{s}, reference).rows[0], " ")
	if strings.ContainsAny(row[len("100,000 keys"):], "0123456789") || !strings.Contains(row, "no result") {
		t.Errorf("one decision without Redis leaves the row %q", row)
	}
}

func TestAFewAnswersMayBeOfTheOtherKind(t *testing.T) {
	s := sample("closed", cases[0])
	s.Rounds[reference][0].Wrong = 1
	if faults := s.faults(); len(faults) > 0 {
		t.Errorf("one answer at the edge of a window: %v", faults)
	}
}

func TestFaultsOfDisturbedRoundsCount(t *testing.T) {
	s := sample("closed", cases[0])
	worse := s.Rounds[spillway][0]
	worse.Server, worse.WithoutRedis = 1000, 1
	before := s.ratio(sumCPU, reference)
	s.Disturbed = map[string][]figures{reference: s.Rounds[reference][:1], spillway: {worse}}
	if faults := s.faults(); len(faults) != 1 {
		t.Errorf("the faults are %q, want the decision without Redis", faults)
	}
	if got := s.ratio(sumCPU, reference); got != before {
		t.Errorf("the ratio is %v, want %v: that of the rounds that count", got, before)
	}
}

func TestARoundIsDisturbedByOneOfItsTurns(t *testing.T) {
	for _, step := range []struct {
		reference, spillway float64
		want                bool
	}{{0, 0, false}, {noisy, noisy, false}, {0.06, 0, true}, {0, 0.06, true}} {
		round := map[string]figures{reference: {Others: step.reference}, spillway: {Others: step.spillway}}
		if got := disturbed(round); got != step.want {
			t.Errorf("with %v and %v of the processors used by others, disturbed is %v, want %v", step.reference,
				step.spillway, got, step.want)
		}
	}
}

func TestRedisThatIsNotAskedHasNoRatio(t *testing.T) {
	s := sample("closed", cases[0])
	for i := range s.Rounds[spillway] {
		s.Rounds[spillway][i].Commands = 0.0004
	}
	if got := s.redisRatio(reference); got != 0 {
		t.Errorf("the ratio is %v", got)
	}
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	s := sample("closed", cases[0])
	for i, busy := range []float64{1, 2, 4} {
		s.Rounds[reference][i].Server, s.Rounds[reference][i].Redis = 80*busy, 20*busy
		s.Rounds[spillway][i].Server, s.Rounds[spillway][i].Redis = 30*busy, 20*busy
	}
	s.Rounds[spillway][0].Server = 1000
	if got := s.ratio(sumCPU, reference); got != 0.5 {
		t.Errorf("the ratio is %v, want 0.5: that of two rounds of three", got)
	}
}

func TestGoalsAreThoseOfThePart(t *testing.T) {
	hot := cases[slices.IndexFunc(cases, func(c testCase) bool { return c.Short == "hot" })]
	for part, want := range map[string]goal{
		"closed": {0.60, 1.2, 1.6, -1}, "four": {0.33, 1.2, 1.6, 0.02}, "leases": {-1, -1, -1, -1},
		"open": {-1, -1, -1, -1},
	} {
		if got := sample(part, hot).goal(); got != want {
			t.Errorf("one hot key in the part %s has the goals %v, want %v", part, got, want)
		}
	}
	for part, all := range goals {
		for short := range all {
			if !slices.ContainsFunc(cases, func(c testCase) bool {
				return c.Short == short && (part == "closed" || slices.Contains(c.Also, part))
			}) {
				t.Errorf("there are goals for %s in the part %s, but no such rounds", short, part)
			}
		}
	}
}

func TestGoalsKeepTheirDigits(t *testing.T) {
	for value, want := range map[float64]string{-1: "", 0: "0", 0.02: "≤ 0.02", 0.5: "≤ 0.5", 1.01: "≤ 1.01",
		5: "≤ 5"} {
		if got := atMost(value); got != want {
			t.Errorf("a goal of at most %v is written %q, want %q", value, got, want)
		}
	}
}

func TestLeasesAreComparedWithTheSidecarWithoutThem(t *testing.T) {
	s := leaseSample(cases[0])
	if got, want := s.servers(), []string{unleased, spillway}; !slices.Equal(got, want) {
		t.Errorf("the servers are %v, want %v", got, want)
	}
	if got, want := s.ratio(sumCPU, unleased), 45.0/65; got != want {
		t.Errorf("the ratio is %v, want %v", got, want)
	}
}

func TestSharesOfACore(t *testing.T) {
	f := figures{PerSecond: 20_000, Redis: 2, Server: 60}
	if got := share(redisCPU)(f); got != 4 {
		t.Errorf("20,000 decisions of 2 µs in a second take %v %% of a core, want 4", got)
	}
	if got := share(serverCPU)(f); got != 120 {
		t.Errorf("20,000 decisions of 60 µs in a second take %v %% of a core, want 120", got)
	}
}
