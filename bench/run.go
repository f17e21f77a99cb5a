package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// inFlight and perServer are the closed loop: calls at once, and connections to each server, as an Envoy with two
// workers has.
const (
	inFlight  = 64
	perServer = 2
)

// study is all rounds of one case in one part.
type study struct {
	Part      string
	Case      testCase
	Rounds    map[string][]figures // by the server's name
	Disturbed map[string][]figures // rounds that others were run in place of; only their faults count
}

// session is a run of the whole benchmark.
type session struct {
	set      settings
	folder   string
	redis    *redisServer
	other    *redisServer // that of the base
	progress *progress
	studies  []*study
}

// compare starts Redis, runs the parts that were asked for, and writes what came out.
func compare(ctx context.Context, set settings) error {
	err := set.find()
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	s := &session{set: set, folder: folder, progress: newProgress(os.Stderr)}
	s.redis, err = startRedis(ctx, folder, "redis")
	if err != nil {
		return err
	}
	defer s.redis.stop()
	if set.Base != "" {
		s.other, err = startRedis(ctx, folder, "redis-of-base")
		if err != nil {
			return err
		}
		defer s.other.stop()
	}
	plan := s.plan()
	s.progress.expect(plan.rounds(set), set.Length+warmth)
	err = s.follow(ctx, plan)
	s.progress.clear()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return s.finish(os.Stdout)
}

// find makes the paths of the programs absolute, and checks that they are there.
func (set *settings) find() error {
	for bin, origin := range map[*string]string{&set.Reference: "make bench builds it",
		&set.Sidecar: "make bench builds it", &set.Base: "BENCH_BASE names it",
		&set.Envoy: "make demo-tools fetches it, or ENVOY_BIN names it"} {
		if *bin == "" {
			continue
		}
		path, err := filepath.Abs(*bin)
		if err != nil {
			return err
		}
		*bin = path
		_, err = os.Stat(path)
		if err != nil {
			return fmt.Errorf("a program is missing; %s: %w", origin, err)
		}
	}
	return nil
}

// stage is one or more parts on the same servers.
type stage struct {
	size     int // servers of each program
	rules    ruleFiles
	programs []program
	parts    []part
}

// part is a kind of load and the cases that get it.
type part struct {
	name  string
	cases []testCase
	load  func(s *session, c testCase) order
}

// judged is whether rounds are run again that others disturbed: what is measured under strain, and memory, does not
// depend on it.
func (p part) judged() bool { return p.name != "strain" && p.name != "memory" }

type stages []stage

// plan is what the settings ask for. Cases with settings of their own come on servers of their own.
func (s *session) plan() stages {
	all := programs(s.set)
	sidecars := all[1:]
	chosen := slices.DeleteFunc(slices.Clone(cases), func(c testCase) bool {
		return !slices.Contains(s.set.Cases, c.Short)
	})
	in := func(part string) []testCase { return s.in(part, chosen) }
	plan := stages{{2, trees, all, []part{
		{"closed", in("closed"), (*session).closed}, {"open", in("open"), (*session).half},
		{"lone", in("lone"), (*session).lowestLoad},
	}}}
	for _, c := range chosen {
		if len(c.Env) > 0 {
			own := slices.Clone(all)
			own[0].env = slices.Concat(own[0].env, c.Env)
			plan = append(plan, stage{2, trees, own, []part{{"closed", []testCase{c}, (*session).closed}}})
		}
	}
	plan = append(plan,
		stage{4, trees, all, []part{{"four", in("four"), (*session).closed}}},
		stage{2, algorithmRules(), sidecars, []part{{"algorithms", algorithmCases(), (*session).closed}}},
		stage{2, scopedRules(), sidecars, []part{{"rules", ruleCases(keys), (*session).closed},
			{"memory", ruleCases(memoryKeys), (*session).closed}}},
		stage{2, trees, sidecars, []part{{"strain", strainCases, (*session).strained}}},
		stage{2, trees, leasePrograms(s.set), []part{{"leases", in("leases"), (*session).closed}}},
		stage{4, trees, all[len(all)-1:], []part{
			{"global", []testCase{capacityCase}, (*session).closed},
			{"global", []testCase{globalCase}, (*session).belowGlobal},
		}},
		stage{1, edgeRules, envoyPrograms(s.set), []part{{"envoy", []testCase{envoyCase}, (*session).steady}}})
	for i := range plan {
		plan[i].parts = slices.DeleteFunc(plan[i].parts, func(p part) bool {
			return len(p.cases) == 0 || !slices.Contains(s.set.Parts, p.name)
		})
	}
	return slices.DeleteFunc(plan, func(g stage) bool { return len(g.parts) == 0 })
}

// in are those of the chosen cases that a part has on servers without settings of their own. With a base the open loop
// and the lone caller have the first case alone.
func (s *session) in(part string, chosen []testCase) []testCase {
	return slices.DeleteFunc(slices.Clone(chosen), func(c testCase) bool {
		if s.set.Base != "" && (part == "open" || part == "lone") && c.Short != cases[0].Short {
			return true
		}
		return len(c.Env) > 0 || part != "closed" && !slices.Contains(c.Also, part)
	})
}

// rounds is how many measurements a plan has.
func (all stages) rounds(set settings) int {
	n := 0
	for _, g := range all {
		for _, p := range g.parts {
			for _, c := range p.cases {
				n += len(g.programs) * set.rounds(p.name, c)
			}
		}
	}
	return n
}

// follow runs a plan.
func (s *session) follow(ctx context.Context, plan stages) error {
	for _, g := range plan {
		err := s.stage(ctx, g)
		if err != nil {
			return err
		}
	}
	return nil
}

// stage starts servers, runs the parts on them, and stops them. After a study that is not a result there are new
// servers: what one does later about decisions without Redis, it would do in the rounds of others.
func (s *session) stage(ctx context.Context, g stage) error {
	var setups []*setup
	stop := func() {
		for _, f := range setups {
			f.stop()
		}
		setups = nil
	}
	defer stop()
	for _, p := range g.parts {
		for _, c := range p.cases {
			for len(setups) < len(g.programs) {
				f := &setup{program: g.programs[len(setups)], folder: s.folder, size: g.size, redis: s.redis}
				if f.name == base {
					f.redis = s.other
				}
				err := startSetup(ctx, f, g.rules)
				if err != nil {
					return err
				}
				setups = append(setups, f)
			}
			done, err := s.study(ctx, p, c, setups)
			if err != nil {
				return err
			}
			s.studies = append(s.studies, done)
			if s.show(done) {
				stop()
			}
		}
	}
	return nil
}

// study runs the rounds of a case. A round in which the processors were needed elsewhere is run again, once for each
// round at most.
func (s *session) study(ctx context.Context, p part, c testCase, setups []*setup) (*study, error) {
	done := &study{Part: p.name, Case: c, Rounds: map[string][]figures{}, Disturbed: map[string][]figures{}}
	rounds := s.set.rounds(p.name, c)
	s.progress.show(fmt.Sprintf("%s, %s: fill Redis", p.name, c.Name))
	if p.name != "memory" {
		err := fill(ctx, setups, p.load(s, c))
		if err != nil {
			return nil, err
		}
	}
	for try, kept := 0, 0; kept < rounds; try++ {
		made, err := s.round(ctx, p, c, setups, try, fmt.Sprintf("round %d of %d", kept+1, rounds))
		if err != nil {
			return nil, err
		}
		if p.judged() && disturbed(made) && try-kept < rounds {
			s.progress.expectMore(len(setups))
			keep(done.Disturbed, made)
			continue
		}
		keep(done.Rounds, made)
		kept++
	}
	return done, nil
}

// round lets each server have its turn. The order changes every time: A B, B A, A B.
func (s *session) round(ctx context.Context, p part, c testCase, setups []*setup, try int,
	name string) (map[string]figures, error) {
	turns := slices.Clone(setups)
	if try%2 == 1 {
		slices.Reverse(turns)
	}
	all := map[string]figures{}
	for _, f := range turns {
		s.progress.step(fmt.Sprintf("%s, %s, %s: %s", p.name, c.Name, f.name, name))
		o := p.load(s, c)
		o.Seed = uint64(try + 1)
		made, err := s.turn(ctx, p, c, f, o)
		if err != nil {
			return nil, err
		}
		all[f.name] = made
	}
	return all, nil
}

// turn is what one server does in a round.
func (s *session) turn(ctx context.Context, p part, c testCase, f *setup, o order) (figures, error) {
	switch {
	case p.name == "memory":
		return weigh(ctx, f, o)
	case p.name == "strain":
		return s.strain(ctx, c, f, o)
	case p.name == "envoy":
		return measureWith(ctx, f, o, s.startFront)
	case c.Work.New:
		err := f.redis.empty()
		if err != nil {
			return figures{}, err
		}
	}
	return measure(ctx, f, o)
}

// disturbed reports whether other programs, or the machine's host, had too much of the processors in a turn of a round.
func disturbed(round map[string]figures) bool {
	for _, made := range round {
		if made.Others > noisy {
			return true
		}
	}
	return false
}

func keep(rounds map[string][]figures, round map[string]figures) {
	for server, made := range round {
		rounds[server] = append(rounds[server], made)
	}
}

// show prints a study, and reports whether it is not a result.
func (s *session) show(done *study) bool {
	s.progress.clear()
	fmt.Printf("%s\n%s\n", titles[done.Part], tableFor(done.Part, done).terminal())
	faults := done.faults()
	for _, line := range faults {
		fmt.Println(red(line))
	}
	return len(faults) > 0
}

// closed is the load that keeps calls in flight.
func (s *session) closed(c testCase) order {
	return order{Connections: perServer, InFlight: inFlight, Warm: warmth, Run: s.set.Length, Work: c.Work}
}

// half is an open loop at half of what the slower server reached in the closed loop: both get the same rate.
func (s *session) half(c testCase) order {
	o := s.closed(c)
	for _, done := range s.studies {
		if done.Part == "closed" && done.Case.Short == c.Short {
			o.Rate = math.Inf(1)
			for _, server := range done.servers() {
				o.Rate = min(o.Rate, done.median(server, perSecond)/2)
			}
		}
	}
	return o
}

// belowGlobal is an open loop at half of what the sidecars reached in the closed loop, and well below the global limit
// on any machine.
func (s *session) belowGlobal(c testCase) order {
	o := s.closed(c)
	for _, done := range s.studies {
		if done.Case.Short == capacityCase.Short {
			o.Rate = min(done.median(spillway, perSecond)/2, 0.9*globalLimit)
		}
	}
	return o
}

// lowestLoad is one caller at a time.
func (s *session) lowestLoad(c testCase) order {
	o := s.closed(c)
	o.Connections, o.InFlight, o.Run = 1, 1, min(s.set.Length, 2*time.Second)
	return o
}
