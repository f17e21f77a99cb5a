package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// inFlight and perServer are the closed loop: calls at once, and connections to each server, as an Envoy with two workers has.
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
	progress *progress
	studies  []*study
}

// compare starts Redis, runs the parts that were asked for, and writes what came out.
func compare(ctx context.Context, set settings) error {
	var err error
	for _, bin := range []*string{&set.Reference, &set.Sidecar} {
		*bin, err = filepath.Abs(*bin)
		if err != nil {
			return err
		}
		_, err = os.Stat(*bin)
		if err != nil {
			return fmt.Errorf("a program is missing; make bench builds it: %w", err)
		}
	}
	folder, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	s := &session{set: set, folder: folder, progress: newProgress(os.Stderr)}
	s.redis, err = startRedis(ctx, folder)
	if err != nil {
		return err
	}
	defer s.redis.stop()
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
	return s.report(os.Stdout)
}

// stage is one or more parts on the same servers.
type stage struct {
	size     int // servers of each program
	rules    string
	programs []program
	parts    []part
}

// part is a kind of load and the cases that get it.
type part struct {
	name  string
	cases []testCase
	load  func(s *session, c testCase) order
}

type stages []stage

// plan is what the settings ask for. Cases with settings of their own come on servers of their own.
func (s *session) plan() stages {
	both := programs(s.set)
	chosen := slices.DeleteFunc(slices.Clone(cases), func(c testCase) bool { return !slices.Contains(s.set.Cases, c.Short) })
	in := func(part string) []testCase {
		return slices.DeleteFunc(slices.Clone(chosen), func(c testCase) bool {
			return len(c.Env) > 0 || part != "closed" && !slices.Contains(c.Also, part)
		})
	}
	all := stages{{2, ruleFile, both, []part{{"closed", in("closed"), (*session).closed}, {"open", in("open"), (*session).half}, {"lone", in("lone"), (*session).lone}}}}
	for _, c := range chosen {
		if len(c.Env) > 0 {
			own := slices.Clone(both)
			own[0].env = slices.Concat(own[0].env, c.Env)
			all = append(all, stage{2, ruleFile, own, []part{{"closed", []testCase{c}, (*session).closed}}})
		}
	}
	all = append(all,
		stage{4, ruleFile, both, []part{{"four", in("four"), (*session).closed}}},
		stage{2, algorithmRules(), both[1:], []part{{"algorithms", algorithmCases(), (*session).closed}}},
		stage{2, ruleFile, leasePrograms(s.set), []part{{"leases", in("leases"), (*session).closed}}},
		stage{4, ruleFile, both[1:], []part{{"global", []testCase{capacityCase}, (*session).closed}, {"global", []testCase{globalCase}, (*session).belowGlobal}}})
	for i := range all {
		all[i].parts = slices.DeleteFunc(all[i].parts, func(p part) bool { return len(p.cases) == 0 || !slices.Contains(s.set.Parts, p.name) })
	}
	return slices.DeleteFunc(all, func(g stage) bool { return len(g.parts) == 0 })
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

// stage starts servers, runs the parts on them, and stops them. After a study that is no result there are new servers: what one does
// later about decisions without Redis, it would do in the rounds of others.
func (s *session) stage(ctx context.Context, g stage) error {
	var fleets []*fleet
	stop := func() {
		for _, f := range fleets {
			f.stop()
		}
		fleets = nil
	}
	defer stop()
	for _, p := range g.parts {
		for _, c := range p.cases {
			for len(fleets) < len(g.programs) {
				f, err := startFleet(ctx, s.folder, g.programs[len(fleets)], g.size, g.rules, s.redis)
				if err != nil {
					return err
				}
				fleets = append(fleets, f)
			}
			done, err := s.study(ctx, p, c, fleets)
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

// study runs the rounds of a case. A round in which the processors were needed elsewhere is run again, once for each round at most.
func (s *session) study(ctx context.Context, p part, c testCase, fleets []*fleet) (*study, error) {
	done := &study{Part: p.name, Case: c, Rounds: map[string][]figures{}, Disturbed: map[string][]figures{}}
	rounds := s.set.rounds(p.name, c)
	s.progress.say(fmt.Sprintf("%s, %s: fill Redis", p.name, c.Name))
	err := fill(ctx, fleets, s.redis, p.load(s, c))
	if err != nil {
		return nil, err
	}
	for try, kept := 0, 0; kept < rounds; try++ {
		made, err := s.round(ctx, p, c, fleets, try, fmt.Sprintf("round %d of %d", kept+1, rounds))
		if err != nil {
			return nil, err
		}
		if disturbed(made) && try-kept < rounds {
			s.progress.expectMore(len(fleets))
			keep(done.Disturbed, made)
			continue
		}
		keep(done.Rounds, made)
		kept++
	}
	return done, nil
}

// round lets each server have its turn. The order changes every time: A B, B A, A B.
func (s *session) round(ctx context.Context, p part, c testCase, fleets []*fleet, try int, name string) (map[string]figures, error) {
	turns := slices.Clone(fleets)
	if try%2 == 1 {
		slices.Reverse(turns)
	}
	all := map[string]figures{}
	for _, f := range turns {
		s.progress.step(fmt.Sprintf("%s, %s, %s: %s", p.name, c.Name, f.name, name))
		if c.Work.New {
			err := s.redis.empty()
			if err != nil {
				return nil, err
			}
		}
		o := p.load(s, c)
		o.Seed = uint64(try + 1)
		made, err := measure(ctx, f, s.redis, o)
		if err != nil {
			return nil, err
		}
		all[f.name] = made
	}
	return all, nil
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

// show prints a study, and reports whether it is no result.
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
			o.Rate = min(done.median(reference, perSecond), done.median(spillway, perSecond)) / 2
		}
	}
	return o
}

// belowGlobal is an open loop at half of what the sidecars reached in the closed loop, and well below the global limit on any machine.
func (s *session) belowGlobal(c testCase) order {
	o := s.closed(c)
	for _, done := range s.studies {
		if done.Case.Short == capacityCase.Short {
			o.Rate = min(done.median(spillway, perSecond)/2, 0.9*globalLimit)
		}
	}
	return o
}

// lone is one caller at a time.
func (s *session) lone(c testCase) order {
	o := s.closed(c)
	o.Connections, o.InFlight, o.Run = 1, 1, min(s.set.Length, 2*time.Second)
	return o
}
