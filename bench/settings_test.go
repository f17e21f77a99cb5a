package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/must"
)

func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestSettings(t *testing.T) {
	set, err := readSettings(environment(nil))
	if err != nil || set.Rounds != 8 || set.Length != time.Second || len(set.Cases) != len(cases) ||
		len(set.Parts) != len(parts) {
		t.Errorf("the default is %+v, %v", set, err)
	}
	set, err = readSettings(environment(map[string]string{
		"BENCH_ROUNDS": "1", "BENCH_SECONDS": "0.5", "BENCH_CASES": "hot,zipf", "BENCH_PARTS": "closed",
		"BENCH_SIDECAR_ENV": "A=1 B=2",
	}))
	if err != nil || set.Rounds != 1 || set.Length != time.Second/2 ||
		!slices.Equal(set.Cases, []string{"hot", "zipf"}) || !slices.Equal(set.SidecarEnv, []string{"A=1", "B=2"}) {
		t.Errorf("got %+v, %v", set, err)
	}
	for name, bad := range map[string]string{"BENCH_ROUNDS": "0", "BENCH_SECONDS": "x", "BENCH_CASES": "hot,cold",
		"BENCH_PARTS": "open"} {
		_, err := readSettings(environment(map[string]string{name: bad}))
		if err == nil {
			t.Errorf("no error for %s=%s", name, bad)
		}
	}
}

func TestPlanHasEveryCaseAndPart(t *testing.T) {
	set := must.Get(readSettings(environment(nil)))(t)
	s := &session{set: set}
	seen := map[string]int{}
	for _, g := range s.plan() {
		for _, p := range g.parts {
			seen[p.name] += len(p.cases)
		}
	}
	for part, want := range map[string]int{"closed": len(cases), "open": 4, "lone": 2, "four": 3,
		"algorithms": len(algorithms), "rules": 3, "memory": 3, "strain": 3, "leases": 2, "global": 2, "envoy": 1} {
		if seen[part] != want {
			t.Errorf("part %s has %d cases, want %d", part, seen[part], want)
		}
	}
	s.set.Cases, s.set.Parts = []string{"zipf"}, []string{"closed", "four"}
	if plan := s.plan(); len(plan) != 1 || plan.rounds(s.set) != 4*set.Rounds {
		t.Errorf("one case in one part has %d stages and %d rounds", len(plan), plan.rounds(s.set))
	}
	s.set.Cases, s.set.Parts = []string{"keys"}, []string{"leases"}
	if got := s.plan().rounds(s.set); got != 8*set.Rounds {
		t.Errorf("leases off and on have %d rounds, want four times the usual for each", got)
	}
}

func TestLeasesAreOffInOneOfTwoSidecars(t *testing.T) {
	two := leasePrograms(settings{Sidecar: "x", SidecarEnv: []string{"A=1"}})
	if len(two) != 2 || two[0].name != unleased || !slices.Equal(two[0].env, []string{"A=1", "LEASES=false"}) ||
		!slices.Equal(two[1].env, []string{"A=1"}) {
		t.Errorf("got %v and %v", two[0].env, two[1].env)
	}
}

func TestPlanWithABase(t *testing.T) {
	set, err := readSettings(environment(map[string]string{"BENCH_BASE": "x"}))
	if err != nil || set.Rounds != 16 || set.Out != "bin/base" {
		t.Fatalf("got %+v, %v", set, err)
	}
	s := &session{set: set}
	seen, rounds := map[string]int{}, 0
	for _, g := range s.plan() {
		for _, p := range g.parts {
			seen[p.name] += len(p.cases)
			rounds += len(p.cases) * len(g.programs) * set.rounds(p.name, p.cases[0])
		}
	}
	want := map[string]int{"closed": 6, "open": 1, "lone": 1, "rules": 3, "memory": 3, "strain": 3}
	if !maps.Equal(seen, want) {
		t.Errorf("the parts have %v cases, want %v", seen, want)
	}
	if most := 16*(8*3+6*2) + memoryRounds*3*2; rounds != most {
		t.Errorf("there are %d turns, want %d", rounds, most)
	}
}

func TestTheOpenLoopStaysBelowTheGlobalLimit(t *testing.T) {
	for capacity, want := range map[float64]float64{40_000: 20_000, 500_000: 90_000} {
		s := &session{studies: []*study{
			{Part: "closed", Case: cases[0], Rounds: map[string][]figures{spillway: {{PerSecond: 7}}}},
			{Part: "global", Case: capacityCase, Rounds: map[string][]figures{spillway: {{PerSecond: capacity}}}},
		}}
		if got := s.belowGlobal(globalCase).Rate; got != want {
			t.Errorf("with a capacity of %v calls a second there are %v, want %v", capacity, got, want)
		}
	}
	if !strings.Contains(ruleFile, fmt.Sprintf("key: global\n    rate_limit: { unit: second, requests_per_unit: %d }",
		globalLimit)) {
		t.Errorf("the rule file has no limit of %d a second", globalLimit)
	}
}

func TestRulesLoadAndMatchTheCases(t *testing.T) {
	for _, files := range []ruleFiles{trees, edgeRules, algorithmRules(), scopedRules()} {
		for name, text := range files {
			d, problems := rules.Decode(name, []byte(text))
			_, more := descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
			problems = append(problems, more...)
			if len(problems) > 0 {
				t.Errorf("%s", rules.FormatProblems(problems))
			}
		}
	}
}
