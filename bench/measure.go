package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// figures are what one round of one server gave. Times are per decision, in microseconds.
type figures struct {
	Decisions, Refused      float64
	PerSecond               float64
	Server, Redis, Load     float64 // processor time
	P50, P95, P99           float64 // milliseconds
	Commands, Trips, Allocs float64 // per decision
	Calls                   float64 // of scripts that Redis ran per decision
	Script                  float64 // microseconds of a script in Redis; NaN without one
	Rate                    float64 // calls per second that an open loop makes
	Others                  float64 // share of the processors that programs outside the benchmark used
	WithoutRedis            float64 // decisions, those of the warm-up, too
	Counter, Key            float64 // bytes that Redis takes for a counter: of its memory, and by MEMORY USAGE of a key
	failures
}

// failures are calls without an answer, and answers that are wrong.
type failures struct {
	Errors, Wrong int
	FirstError    string
}

// counters are the sums since the start of each process, at one moment.
type counters struct {
	server, redis time.Duration
	machine       machine
	counts        redisCounts
}

// selves is what a setup counts about itself.
func (f *setup) selves() (self, error) {
	var sum self
	for _, n := range f.nodes {
		one, err := f.self(n.debug)
		if err != nil {
			return sum, n.complain(err)
		}
		sum.Allocations += one.Allocations
		sum.WithoutRedis += one.WithoutRedis
	}
	return sum, nil
}

// times reads the processor time of everything.
func (c *counters) times(f *setup) error {
	var err error
	c.redis, err = cpuOf(f.redis.cmd.Process.Pid)
	if err != nil {
		return f.redis.complain(err)
	}
	for _, n := range f.nodes {
		cpu, err := cpuOf(n.cmd.Process.Pid)
		if err != nil {
			return n.complain(err)
		}
		c.server += cpu
	}
	c.machine, err = cpuOfMachine()
	return err
}

// readRedis reads what Redis counts.
func (c *counters) readRedis(redis *redisServer) error {
	var err error
	c.counts, err = redis.conn.counts()
	if err != nil {
		return redis.complain(err)
	}
	return nil
}

// fill empties Redis, and lets each server answer each request of a case once. So the counters are there when the
// rounds begin, as they are where servers have run for some time.
func fill(ctx context.Context, setups []*setup, o order) error {
	for _, f := range setups {
		err := f.redis.empty()
		if err != nil {
			return err
		}
	}
	o.Fill, o.Rate, o.Warm, o.Run = true, 0, 0, time.Minute
	o.Connections, o.InFlight = perServer, inFlight
	for _, f := range setups {
		for _, target := range f.targets() {
			o.Targets = []string{target}
			err := sweep(ctx, o)
			if err != nil {
				return fmt.Errorf("fill Redis through %s: %w", f.name, err)
			}
		}
	}
	return nil
}

// sweep makes the calls of an order that is not measured.
func sweep(ctx context.Context, o order) error {
	ctx, cancel := limit(ctx, o)
	defer cancel()
	g, err := startGenerator(ctx, o)
	if err != nil {
		return err
	}
	seen, err := g.runLoad(func() error { return nil })
	if err == nil && seen.Errors > 0 {
		err = errors.New(seen.FirstError)
	}
	return err
}

// source makes the load of a round.
type source interface {
	// runLoad calls measured as soon as the load has ended.
	runLoad(measured func() error) (outcome, error)
	// wait ends a load that did not run because of an error.
	wait(err error) error
}

// measure runs one round against a setup with the load generator.
func measure(ctx context.Context, f *setup, o order) (figures, error) {
	return measureWith(ctx, f, o, func(ctx context.Context, _ *setup, o order) (source, error) {
		return startGenerator(ctx, o)
	})
}

// measureWith runs one round with a load that start has made warm.
func measureWith(ctx context.Context, f *setup, o order,
	start func(context.Context, *setup, order) (source, error)) (figures, error) {
	ctx, cancel := limit(ctx, o)
	defer cancel()
	o.Targets = f.targets()
	cold, err := f.selves()
	if err != nil {
		return figures{}, err
	}
	g, err := start(ctx, f, o)
	if err != nil {
		return figures{}, err
	}
	made, err := observe(f, g)
	made.WithoutRedis -= cold.WithoutRedis
	made.Rate = o.Rate
	made.Wrong = int(made.Refused)
	if o.Work.Refused {
		made.Wrong = int(made.Decisions - made.Refused)
	}
	return made, err
}

// observe lets the load flow and takes the counters before and after. A report of a server or of Redis about itself
// costs it time, so processor time is read last before the load and first after it. Decisions without Redis are those
// since the server's start.
func observe(f *setup, g source) (figures, error) {
	var before, after counters
	warm, err := f.selves()
	if err == nil {
		err = before.readRedis(f.redis)
	}
	if err == nil {
		err = before.times(f)
	}
	if err != nil {
		return figures{}, g.wait(err)
	}
	seen, err := g.runLoad(func() error { return after.times(f) })
	if err == nil {
		err = after.readRedis(f.redis)
	}
	if err != nil {
		return figures{}, err
	}
	last, err := f.selves()
	if err != nil {
		return figures{}, err
	}
	if seen.Decisions == 0 {
		return figures{}, fmt.Errorf("%s made no decision; the first error: %s", f.name, seen.FirstError)
	}
	made := figuresOf(before, after, seen)
	made.Allocs = (last.Allocations - warm.Allocations) / made.Decisions
	made.WithoutRedis = last.WithoutRedis
	return made, nil
}

// housekeeping is how many commands per decision are not about decisions: sidecars exchange heartbeats in Redis, also
// while the other server has its turn.
const housekeeping = 0.01

// figuresOf divides what was counted between two moments by the decisions.
func figuresOf(before, after counters, seen outcome) figures {
	n := float64(seen.Decisions)
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / n }
	ours := after.server - before.server + after.redis - before.redis + seen.CPU
	script := math.NaN()
	calls := float64(after.counts.Scripts.Calls - before.counts.Scripts.Calls)
	if calls/n > housekeeping {
		script = float64(after.counts.Scripts.Micros-before.counts.Scripts.Micros) / calls
	}
	return figures{
		Decisions: n, Refused: float64(seen.Refused),
		PerSecond: n / seen.Elapsed.Seconds(),
		Server:    micros(after.server - before.server),
		Redis:     micros(after.redis - before.redis),
		Load:      micros(seen.CPU),
		P50:       float64(seen.P50) / float64(time.Millisecond),
		P95:       float64(seen.P95) / float64(time.Millisecond),
		P99:       float64(seen.P99) / float64(time.Millisecond),
		Commands:  float64(after.counts.Commands-before.counts.Commands-1) / n,
		Trips:     float64(after.counts.Reads-before.counts.Reads-1) / n,
		Script:    script,
		Calls:     calls / n,
		Others: max(0, ratio(float64(after.machine.busy-before.machine.busy-ours),
			float64(after.machine.all-before.machine.all))),
		failures: failures{Errors: seen.Errors, FirstError: seen.FirstError},
	}
}
