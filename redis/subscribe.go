package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	subscribeIdle  = time.Second            // after so long without a message the server is asked for a sign of life
	subscribePause = 200 * time.Millisecond // before a lost subscription is made again
)

// subscription is what is done about a channel.
type subscription struct {
	channel string
	message func(text string)
	gap     func()
}

// Subscribe calls message with each text that is published on a channel, on connections of its own, until stop is
// called, which waits for the end. A lost subscription is made again. gap is called when a subscription begins: what
// was published before it was missed. Of a ring it subscribes to every server. The functions are called from one
// goroutine per server and must not block for long.
func (c *Client) Subscribe(channel string, message func(text string), gap func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	keep := func(home func() *Server) {
		for open := true; open; open = pause(ctx, subscribePause) {
			c.Guard(func() { home().subscribe(ctx, subscription{channel, message, gap}) })
		}
	}
	if c.cluster == nil {
		for _, s := range c.fixed {
			running.Go(func() { keep(func() *Server { return s }) })
		}
	} else { // what one server gets, all publish
		running.Go(func() {
			keep(func() *Server {
				all := c.Servers()
				return all[rand.IntN(len(all))]
			})
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// subscribe follows a channel until the connection is lost, or the server is not one of those in use any more.
func (s *Server) subscribe(ctx context.Context, to subscription) {
	if s.dial == nil {
		return // the servers of the cluster are not known yet
	}
	epoch := s.epoch.Load()
	client := goredis.NewClient(s.client.cfg.within(answerWithin, 1, s.connect))
	defer client.Close()
	feed := client.Subscribe(ctx, to.channel)
	end := func() { _ = feed.Close() } // it ends the wait below
	defer context.AfterFunc(ctx, end)()
	defer end()
	for asked := false; ctx.Err() == nil; {
		got, err := feed.ReceiveTimeout(ctx, subscribeIdle)
		var slow net.Error
		switch {
		case err == nil:
			asked = false
			to.take(got)
		case s.epoch.Load() != epoch || !slices.Contains(s.client.Servers(), s):
			return // another server has taken its place, and what is published there does not come here
		case errors.As(err, &slow) && slow.Timeout() && !asked:
			asked = true
			if feed.Ping(ctx) != nil {
				return
			}
		default:
			return
		}
	}
}

// take hands on what came over the subscription.
func (to subscription) take(got any) {
	switch got := got.(type) {
	case *goredis.Subscription:
		to.gap()
	case *goredis.Message:
		to.message(got.Payload)
	}
}
