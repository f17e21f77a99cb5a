package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// errOverload is what OnError gets with ReasonOverload.
var errOverload = errors.New("too many calls to redis in flight")

const (
	warmPause  = 100 * time.Millisecond // the least time between two rounds of greeting
	knockPause = 400 * time.Millisecond // the most between two tries to reach a server that does not answer
	warmEvery  = time.Minute            // the most between two rounds; so idle connections that died are found, and that the client was closed
)

// warmer greets the server on a few connections beside the requests, at the start and after a connection was lost. The
// library greets within the request that first uses a connection; where that takes more than the budget, no connection
// would ever become usable. While the server does not answer it goes on trying, always on a fresh connection.
type warmer struct {
	client  *redis.Client
	conns   int
	timeout time.Duration
	dialer  *dialer // lets go of connections that may be dead
	back    func()  // told when the server answers again
	again   chan struct{}
	done    chan struct{}
	cancel  context.CancelFunc
}

// newWarmer begins to greet in the background, a part of the pool that leaves some to the requests: connections are held for the
// length of a round.
func newWarmer(client *redis.Client, s Servers, dialer *dialer, back func()) *warmer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &warmer{
		client: client, conns: max(1, min(s.MinIdle, s.PoolSize/2)), timeout: s.AnswerTimeout, dialer: dialer, back: back,
		again: make(chan struct{}, 1), done: make(chan struct{}), cancel: cancel,
	}
	go w.run(ctx)
	return w
}

// stop ends the greeting and waits for it.
func (w *warmer) stop() {
	w.cancel()
	<-w.done
}

// ended reports whether the client was closed, by the library if not by us.
func (w *warmer) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// wake asks for another round, when connections are gone.
func (w *warmer) wake() {
	select {
	case w.again <- struct{}{}:
	default:
	}
}

// run greets, and knocks while nobody answers.
func (w *warmer) run(ctx context.Context) {
	defer close(w.done)
	for ctx.Err() == nil {
		state := w.greet(ctx, w.conns)
		for wait := warmPause; state == mute && pause(ctx, wait); wait = min(2*wait, knockPause) {
			w.dialer.cull()
			state = w.greet(ctx, 1)
			if state == answering {
				w.back()
				w.wake()
			}
		}
		if state == ended || !pause(ctx, warmPause) {
			return
		}
		timer := time.NewTimer(warmEvery)
		select {
		case <-w.again:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
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

// What a round of greeting finds.
const (
	answering = iota // a server
	mute             // nobody on any connection
	ended            // the client is closed
)

// scripts are brought along, each on a connection of its own.
var scripts = []string{limit.LeanScript, limit.Script}

// greet holds all connections until the last is greeted, so that they are different ones. The scripts are brought along;
// whether that works shows in the calls.
func (w *warmer) greet(ctx context.Context, conns int) int {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	var ready, all sync.WaitGroup
	var closed, heard atomic.Bool
	ready.Add(conns)
	for i := range conns {
		all.Go(func() {
			conn := w.client.Conn()
			defer conn.Close()
			var err error
			if i < len(scripts) {
				err = conn.ScriptLoad(ctx, scripts[i]).Err()
			} else {
				err = conn.Ping(ctx).Err()
			}
			if errors.Is(err, redis.ErrClosed) {
				closed.Store(true)
			}
			if answers(err) {
				heard.Store(true)
			}
			ready.Done()
			ready.Wait()
		})
	}
	all.Wait()
	switch {
	case closed.Load():
		return ended
	case heard.Load():
		return answering
	}
	return mute
}

// answers reports whether the server said something, other than that it is not ready. Where calls hold all connections it does.
func answers(err error) bool {
	why := ""
	if err != nil {
		why = reason(err)
	}
	switch why {
	case ReasonTimeout, ReasonDial, ReasonClosed, ReasonLoading, ReasonClients, ReasonError:
		return false
	}
	return true
}

// silence is a logger for go-redis that writes nothing: what it has to say arrives as an error and is counted.
type silence struct{}

// Printf drops the line.
func (silence) Printf(context.Context, string, ...any) {}

var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })
