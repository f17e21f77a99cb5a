package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const subscribeIdle = time.Second // after so long without a message the server is asked for a sign of life

// Subscribe calls message with each text that is published on a channel, on connections of its own, until stop is
// called, which waits for the end. A lost subscription is made again. gap is called when a subscription begins: what
// was published before it was missed. Of a ring it subscribes to every server. The functions are called from one
// goroutine per server and must not block for long.
func (c *Client) Subscribe(channel string, message func(text string), gap func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	take := func(got any) {
		switch got := got.(type) {
		case *goredis.Subscription:
			gap()
		case *goredis.Message:
			message(got.Payload)
		}
	}
	for i := range c.Everywhere() {
		running.Go(func() {
			for open := true; open; open = pause(ctx, lookPause) {
				c.Guard(func() { c.Everywhere()[i].subscribe(ctx, channel, take) })
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// subscribe follows a channel until the connection is lost, or the server is not one of those in use any more.
func (s *Server) subscribe(ctx context.Context, channel string, take func(got any)) {
	if s.cold == nil {
		return // the servers of the cluster are not known yet
	}
	epoch := s.epoch.Load()
	client := goredis.NewClient(s.options(answerWithin, 1))
	defer func() { _ = client.Close() }()
	feed := client.Subscribe(ctx, channel)
	end := func() { _ = feed.Close() } // it ends the wait below
	defer context.AfterFunc(ctx, end)()
	defer end()
	for asked := false; ctx.Err() == nil; {
		got, err := feed.ReceiveTimeout(ctx, subscribeIdle)
		switch {
		case err == nil:
			asked = false
			take(got)
		case s.epoch.Load() != epoch || !slices.Contains(s.client.Servers(), s):
			return // another server has taken its place, and what is published there does not come here
		case asked || !isTimeout(err) || feed.Ping(ctx) != nil:
			return
		default:
			asked = true
		}
	}
}
