package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// order is what one run of the load generator does. It is sent to its process as JSON.
type order struct {
	Targets     []string // host:port of each server
	Connections int      // to each of them
	InFlight    int      // calls at once in a closed loop
	Rate        float64  // calls per second in an open loop; 0: a closed loop
	Warm, Run   time.Duration
	Work        work
	Seed        uint64
}

// outcome is what it saw in the measured part. Errors are those of the warm-up, too.
type outcome struct {
	Decisions, Refused, Errors int
	FirstError                 string
	Elapsed, P50, P99, CPU     time.Duration
}

// method is the call that Envoy makes.
const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// patience ends a run that hangs, beyond the time that it should take.
const patience = 20 * time.Second

// serveLoad is the process of the load generator. It reads an order, warms up, writes "warm", waits for "go", runs, writes "done" at
// once, and then the outcome: a reader of "warm" and "done" measures the servers in between.
func serveLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	var o order
	err = json.Unmarshal(line, &o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Warm+o.Run+patience)
	defer cancel()
	l, err := newLoad(o)
	if err != nil {
		return err
	}
	defer l.close()
	warm := l.flow(ctx, o.Warm)
	fmt.Fprintln(out, "warm")
	_, err = lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	before, begin := cpuOfThisProcess(), time.Now()
	t := l.flow(ctx, o.Run)
	elapsed, cpu := time.Since(begin), cpuOfThisProcess()-before
	fmt.Fprintln(out, "done")
	slices.Sort(t.latencies)
	t.fail(warm.errors, warm.first)
	return json.NewEncoder(out).Encode(outcome{
		Decisions: len(t.latencies), Refused: t.refused, Errors: t.errors, FirstError: t.first, Elapsed: elapsed, CPU: cpu,
		P50: time.Duration(percentile(t.latencies, 0.5)), P99: time.Duration(percentile(t.latencies, 0.99)),
	})
}

// tally is what callers saw.
type tally struct {
	latencies []int64 // nanoseconds, one for each answer
	refused   int
	errors    int
	first     string // error
}

func (t *tally) fail(n int, text string) {
	t.errors += n
	if t.first == "" {
		t.first = text
	}
}

func (t *tally) add(other tally) {
	t.latencies = append(t.latencies, other.latencies...)
	t.refused += other.refused
	t.fail(other.errors, other.first)
}

// load has the connections and the encoded requests.
type load struct {
	order       order
	connections []*grpc.ClientConn
	requests    []mem.BufferSlice
}

func newLoad(o order) (*load, error) {
	requests, err := encode(o.Work, rand.New(rand.NewPCG(o.Seed, 0)))
	if err != nil {
		return nil, err
	}
	l := &load{order: o, requests: requests}
	for range o.Connections {
		for _, target := range o.Targets {
			c, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.StaticMethod()), grpc.WithDisableRetry(),
				grpc.WithDisableServiceConfig())
			if err != nil {
				return nil, err
			}
			l.connections = append(l.connections, c)
		}
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.connections {
		_ = c.Close()
	}
}

// caller makes calls, one at a time, on one of the connections.
type caller struct {
	ctx        context.Context
	connection *grpc.ClientConn
	requests   []mem.BufferSlice
	next       func() int
	tally      tally
}

func (l *load) caller(ctx context.Context, i int) *caller {
	r := rand.New(rand.NewPCG(l.order.Seed, uint64(i+1)))
	return &caller{ctx: steady{ctx}, connection: l.connections[i%len(l.connections)], requests: l.requests, next: draws(l.order.Work, r)}
}

// call makes one call. Its latency counts from the given time.
func (c *caller) call(from time.Time) {
	var code uint64
	err := c.connection.Invoke(c.ctx, method, &c.requests[c.next()], &code)
	switch {
	case err == nil && code != admitted && code != refused:
		c.tally.fail(1, fmt.Sprintf("an answer with overall_code %d", code))
	case err != nil && errors.Is(c.ctx.Err(), context.Canceled):
	case err != nil:
		c.tally.fail(1, err.Error())
	default:
		c.tally.latencies = append(c.tally.latencies, int64(time.Since(from)))
		if code == refused {
			c.tally.refused++
		}
	}
}

// flow makes the calls of the order for some time: an open loop if it has a rate, else a closed one. The warm-up of an open loop has its
// rate, too, so that it does not spend a limit which the rate stays below.
func (l *load) flow(ctx context.Context, length time.Duration) tally {
	if l.order.Rate > 0 {
		return l.open(ctx, length)
	}
	return l.closed(ctx, length)
}

// closed keeps a number of calls in flight: each caller makes its next call when it has the answer to the last.
func (l *load) closed(ctx context.Context, length time.Duration) tally {
	end := time.Now().Add(length)
	return l.crowd(ctx, l.order.InFlight, func(c *caller) {
		for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
			c.call(now)
		}
	})
}

// openCallers is how many calls of an open loop may be in flight. Further ones wait, and their latency counts from when they were due.
const openCallers = 512

// open makes calls at a rate, whatever the answers do. Latency counts from the time at which a call was due.
func (l *load) open(ctx context.Context, length time.Duration) tally {
	due := make(chan time.Time, 1<<16)
	go pace(ctx, l.order.Rate, length, due)
	return l.crowd(ctx, openCallers, func(c *caller) {
		for at := range due {
			c.call(at)
		}
	})
}

// crowd runs callers at the same time, waits for all of them and adds up what they saw.
func (l *load) crowd(ctx context.Context, size int, run func(*caller)) tally {
	callers := make([]*caller, size)
	var wait sync.WaitGroup
	for i := range callers {
		callers[i] = l.caller(ctx, i)
		wait.Go(func() { run(callers[i]) })
	}
	wait.Wait()
	var all tally
	for _, c := range callers {
		all.add(c.tally)
	}
	return all
}

// cpuOfThisProcess is the processor time of the load generator so far.
func cpuOfThisProcess() time.Duration {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	if err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
