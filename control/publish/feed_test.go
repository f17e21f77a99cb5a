package publish

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/redis/peers"
)

// A change is written, and the news of it fails. The next attempt finds it written, and has to announce it all the
// same.
func TestNewsThatWasLostIsAnnouncedLater(t *testing.T) {
	for topic, change := range map[string]func(context.Context, *capacity) error{
		peers.TopicProfile: func(ctx context.Context, c *capacity) error {
			_, err := c.SetBlock(ctx, database.Actor{Name: "ann"}, database.Subject{Domain: "shop",
				Kind: database.KindUser, Name: "mallory"}, database.BlockRequest{}, nil)
			return err
		},
		peers.TopicRules: func(ctx context.Context, c *capacity) error {
			_, _, err := c.AddVersion(ctx, database.Actor{Name: "ann"}, "shop",
				"domain: shop\nrules:\n  - { name: a, scope: user, limit: 1/1m }\n", "", true, nil)
			return err
		},
	} {
		t.Run(topic, func(t *testing.T) {
			c, ctx := newCapacity(t), t.Context()
			channel := c.publisher.cfg.Keys.Shared("news")
			arrived, ends := make(chan string, 1000), "end" // of the news so far
			stop := peers.Receive(c.client, channel,
				map[string]func([]byte){topic: func([]byte) { arrived <- topic },
					ends: func([]byte) { arrived <- ends }})
			defer stop()
			// announced is how much news of the topic came before the end, which is announced until it arrives.
			announced := func() (topics int) {
				for {
					c.must(peers.Announce(ctx, c.client, channel, ends, struct{}{}))
					for wait := time.After(100 * time.Millisecond); wait != nil; {
						select {
						case one := <-arrived:
							if one == ends {
								return topics
							}
							topics++
						case <-wait:
							wait = nil
						}
					}
				}
			}
			announced()
			c.must(change(ctx, c))
			c.redis.Do(c, "ACL", "SETUSER", "default", "-publish")
			if c.publisher.Feed(ctx, nil) == nil {
				t.Fatal("the feed did not fail, and no news can be announced")
			}
			c.redis.Do(c, "ACL", "SETUSER", "default", "+publish")
			c.must(c.publisher.Feed(ctx, nil))
			if left := c.number(`SELECT count(*) FROM audit WHERE done_at IS NULL`); left != 0 {
				t.Fatalf("%d changes are left", left)
			}
			if announced() == 0 {
				t.Error("the change is noted as done, and it was not announced")
			}
		})
	}
}
