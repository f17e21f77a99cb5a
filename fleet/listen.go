package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	listenIdle = time.Second            // after so long without a message the server is asked for a sign of life
	listenRest = 200 * time.Millisecond // the pause before a lost subscription is made again
)

// Listener hears what is published on a channel. Its functions are called from one goroutine per server and must not block for long.
type Listener struct {
	Channel string
	Message func(text string)
	Gap     func() // called when a subscription begins: what was published before, it did not hear
}

// Listen subscribes to a channel, on connections of its own, until the function that it returns is called, which waits for the end. A
// lost subscription is made again. Of a ring every server is listened to; elsewhere one hears what all servers publish.
func (f *Fleet) Listen(l Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	pick := func() *Node {
		nodes := f.Nodes()
		return nodes[rand.IntN(len(nodes))]
	}
	if !f.Everywhere() {
		running.Go(func() { f.listen(ctx, l, pick) })
	} else {
		for _, n := range f.Nodes() {
			running.Go(func() { f.listen(ctx, l, func() *Node { return n }) })
		}
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// listen keeps one subscription.
func (f *Fleet) listen(ctx context.Context, l Listener, home func() *Node) {
	for ctx.Err() == nil {
		f.Guard(func() { f.subscribe(ctx, l, home()) })
		rest := time.NewTimer(listenRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
		}
	}
}

// subscribe follows a channel on one server until the connection is lost, or the server is no longer one of those in use.
func (f *Fleet) subscribe(ctx context.Context, l Listener, n *Node) {
	o := f.servers.options("")
	o.Protocol = 2
	o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		if n.lobby {
			return nil, errNoLink // the servers of the cluster are not known yet
		}
		return bound(n.dial(ctx))
	}
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }() // what was heard is over
	heard := client.Subscribe(ctx, l.Channel)
	stop := context.AfterFunc(ctx, func() { _ = heard.Close() }) // the end of the context ends the wait below
	defer stop()
	defer func() { _ = heard.Close() }()
	since := n.since.Load()
	for asked := false; ctx.Err() == nil; {
		got, err := heard.ReceiveTimeout(ctx, listenIdle)
		var slow net.Error
		switch {
		case err == nil:
			asked = false
			l.take(got)
		case n.since.Load() != since || !slices.Contains(f.Nodes(), n):
			return // another server has taken its place, and what is published there is not heard here
		case errors.As(err, &slow) && slow.Timeout() && !asked:
			asked = true
			if heard.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// take hands on what came over the subscription.
func (l Listener) take(got any) {
	switch got := got.(type) {
	case *redis.Subscription:
		l.Gap()
	case *redis.Message:
		l.Message(got.Payload)
	}
}
