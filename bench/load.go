package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// order is what one run of the load generator does. It is sent to its process as JSON.
type order struct {
	Targets     []string // host:port of each server
	Connections int      // to each of them
	Fill        bool     // makes each call once, and no others
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
	Elapsed, P50, P95, P99     time.Duration
	CPU                        time.Duration
}

// method is the call that Envoy makes.
const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// patience ends a run that hangs, beyond the time that it should take.
const patience = 20 * time.Second

// serveLoad is the process of the load generator. It reads an order, warms up, writes "warm", waits for "go", runs,
// writes "done" at once, and then the outcome: a reader of "warm" and "done" measures the servers in between.
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
	l, err := newLoad(ctx, o)
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
	t := l.measured(ctx)
	elapsed, cpu := time.Since(begin), cpuOfThisProcess()-before
	fmt.Fprintln(out, "done")
	t.fail(warm.errors, warm.first)
	return json.NewEncoder(out).Encode(t.outcome(elapsed, cpu))
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

// outcome is what callers saw in some time.
func (t *tally) outcome(elapsed, cpu time.Duration) outcome {
	slices.Sort(t.latencies)
	at := func(share float64) time.Duration { return time.Duration(percentile(t.latencies, share)) }
	return outcome{
		Decisions: len(t.latencies), Refused: t.refused, Errors: t.errors, FirstError: t.first, Elapsed: elapsed,
		CPU: cpu, P50: at(0.5), P95: at(0.95), P99: at(0.99),
	}
}

func (t *tally) merge(other tally) {
	t.latencies = append(t.latencies, other.latencies...)
	t.refused += other.refused
	t.fail(other.errors, other.first)
}

// load has the connections and the encoded requests.
type load struct {
	order    order
	wires    []*wire
	requests [][]byte
	numbered []func() []byte // by connection, where each request is about new counters
}

func newLoad(ctx context.Context, o order) (*load, error) {
	requests, err := encode(o.Work, o.Fill, rand.New(rand.NewPCG(o.Seed, 0)))
	if err != nil {
		return nil, err
	}
	l := &load{order: o, requests: requests}
	for range o.Connections {
		for _, target := range o.Targets {
			w, err := dialWire(ctx, target)
			if err != nil {
				l.close()
				return nil, err
			}
			l.numbered = append(l.numbered, numbered(requests[0], o.Seed, len(l.wires)))
			l.wires = append(l.wires, w)
		}
	}
	return l, nil
}

func (l *load) close() {
	for _, w := range l.wires {
		_ = w.conn.Close()
	}
}

// draw returns a function that chooses the next request of a connection.
func (l *load) draw(i int) func() []byte {
	if l.order.Work.New {
		return l.numbered[i]
	}
	next := draws(l.order.Work, rand.New(rand.NewPCG(l.order.Seed, uint64(i+1))))
	return func() []byte { return l.requests[next()] }
}

// measured makes the calls of the measured part.
func (l *load) measured(ctx context.Context) tally {
	if l.order.Fill {
		return l.fill(ctx)
	}
	return l.flow(ctx, l.order.Run)
}

// flow makes the calls of the order for some time: an open loop if it has a rate, else a closed one. The warm-up of an
// open loop has its rate, too, so that it does not spend a limit which the rate stays below.
func (l *load) flow(ctx context.Context, length time.Duration) tally {
	if l.order.Rate > 0 {
		return l.open(ctx, length)
	}
	end := time.Now().Add(length)
	return l.closed(ctx, func(i int) func(now time.Time) []byte {
		next := l.draw(i)
		return func(now time.Time) []byte {
			if !now.Before(end) {
				return nil
			}
			return next()
		}
	})
}

// fill makes each call once.
func (l *load) fill(ctx context.Context) tally {
	return l.closed(ctx, func(i int) func(time.Time) []byte {
		return func(time.Time) []byte {
			if i >= len(l.requests) {
				return nil
			}
			i += len(l.wires)
			return l.requests[i-len(l.wires)]
		}
	})
}

// closed keeps a number of calls in flight, the same on each connection: a call that is answered makes room for the
// next. A connection ends with its requests.
func (l *load) closed(ctx context.Context, requests func(i int) func(now time.Time) []byte) tally {
	each := max(1, l.order.InFlight/len(l.wires))
	return l.together(ctx, func(i int, w *wire) func(now time.Time) bool {
		next := requests(i)
		return func(now time.Time) bool {
			for len(w.calls) < each && ctx.Err() == nil {
				request := next(now)
				if request == nil {
					return false
				}
				w.begin(request, now)
			}
			return ctx.Err() == nil
		}
	})
}

// open makes calls at a rate that does not depend on the answers. Latency counts from the time at which a call was due.
func (l *load) open(ctx context.Context, length time.Duration) tally {
	queues := make([]*queue, len(l.wires))
	for i, w := range l.wires {
		queues[i] = &queue{wire: w, next: l.draw(i)}
	}
	go func() {
		turn := 0
		pace(ctx, l.order.Rate, length, func(at time.Time) {
			queues[turn%len(queues)].due(at)
			turn++
		})
		for _, q := range queues {
			q.close()
		}
	}()
	return l.together(ctx, func(i int, _ *wire) func(now time.Time) bool { return queues[i].refill })
}

// together follows all connections at the same time, and adds up what they saw.
func (l *load) together(ctx context.Context, refill func(i int, w *wire) func(now time.Time) bool) tally {
	var wait sync.WaitGroup
	for i, w := range l.wires {
		w.tally = tally{}
		wait.Go(func() { w.follow(ctx, refill(i, w)) })
	}
	wait.Wait()
	var all tally
	for _, w := range l.wires {
		all.merge(w.tally)
	}
	return all
}

// queue holds the calls of an open loop that are due on a connection and wait for room.
type queue struct {
	wire  *wire
	next  func() []byte
	times []time.Time
	ended bool
}

// due makes a call, or lets it wait.
func (q *queue) due(at time.Time) {
	q.wire.mu.Lock()
	defer q.wire.mu.Unlock()
	q.times = append(q.times, at)
	q.refill(at)
	_ = q.wire.flush() // the reader of the connection meets the error, too
}

// refill begins the calls that have room. There may be more until the end.
func (q *queue) refill(time.Time) (more bool) {
	for len(q.times) > 0 && len(q.wire.calls) < q.wire.most {
		q.wire.begin(q.next(), q.times[0])
		q.times = q.times[1:]
	}
	return !q.ended || len(q.times) > 0
}

// close closes the queue: no more calls are due.
func (q *queue) close() {
	q.wire.mu.Lock()
	defer q.wire.mu.Unlock()
	q.ended = true
	if len(q.wire.calls) == 0 {
		q.wire.wake()
	}
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
