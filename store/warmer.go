package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// errOverload is what OnError gets with ReasonOverload.
var errOverload = errors.New("too many calls to redis in flight")

// warmPause is the least time between two rounds of greeting.
const warmPause = 100 * time.Millisecond

// warmer greets the server on a few connections beside the requests, at the start and after a connection was lost. The
// library greets within the request that first uses a connection; where that takes more than the budget, no connection
// would ever become usable.
type warmer struct {
	client  *redis.Client
	conns   int
	timeout time.Duration
	again   chan struct{}
	done    chan struct{}
	cancel  context.CancelFunc
}

// start begins to greet in the background. conns should leave a part of the pool to the requests: they are held for the
// length of a round.
func (w *warmer) start(client *redis.Client, conns int, timeout time.Duration) {
	w.client, w.conns, w.timeout = client, conns, timeout
	w.again = make(chan struct{}, 1)
	w.done = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	go w.run(ctx)
}

// stop ends the greeting and waits for it.
func (w *warmer) stop() {
	w.cancel()
	<-w.done
}

// wake asks for another round when the reason of a lost call says that connections are gone.
func (w *warmer) wake(reason string) {
	if reason != ReasonTimeout && reason != ReasonDial && reason != ReasonClosed {
		return
	}
	select {
	case w.again <- struct{}{}:
	default:
	}
}

func (w *warmer) run(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		w.greet(ctx)
		if !pause(ctx, warmPause) {
			return
		}
		select {
		case <-w.again:
		case <-ctx.Done():
		}
	}
}

// pause waits, and reports whether the context lived on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// greet holds all connections until the last is greeted, so that they are different ones. The script is brought along;
// whether that works shows in the calls.
func (w *warmer) greet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var ready, all sync.WaitGroup
	ready.Add(w.conns)
	for i := range w.conns {
		all.Go(func() {
			conn := w.client.Conn()
			defer conn.Close()
			if i == 0 {
				conn.ScriptLoad(ctx, limit.Script)
			} else {
				conn.Ping(ctx)
			}
			ready.Done()
			ready.Wait()
		})
	}
	all.Wait()
}

// silence is a logger for go-redis that writes nothing: what it has to say arrives as an error and is counted.
type silence struct{}

// Printf drops the line.
func (silence) Printf(context.Context, string, ...any) {}

var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })
