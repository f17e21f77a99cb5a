package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/redis/peers"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/store"
	"github.com/spillway-mesh/spillway/test/servers"
)

// replyOf is a whole reply of the protocol, of any kind, with a text. Its lines are the items of lists.
func replyOf(kind byte, text string) []byte {
	line := strings.NewReplacer("\r", "", "\n", "").Replace(text)
	bulk := func(one string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(one), one) }
	items := strings.Split(text, "\n")
	list := fmt.Sprintf("*%d\r\n", len(items))
	for _, item := range items {
		list += bulk(item)
	}
	switch kind % 8 {
	case 0:
		return []byte(list)
	case 1:
		return []byte(bulk(text))
	case 2:
		return []byte("*2\r\n" + list + list)
	case 3:
		return []byte(":" + line + "\r\n")
	case 4:
		return []byte("-" + line + "\r\n")
	case 5:
		return []byte("+" + line + "\r\n")
	case 6:
		return []byte("*2\r\n" + bulk(text) + "$-1\r\n")
	}
	return []byte("*3\r\n:1\r\n-ERR " + line + "\r\n" + bulk(text))
}

// readers is all that reads what Redis replies and publishes, without anything that recovers from a panic.
type readers struct {
	store     *store.Redis
	profiles  *profiles.Store
	peers     *peers.Peers
	documents func() ([]rules.Document, error)
}

// openReaders opens them at an address.
func openReaders(f *testing.F, address string) *readers {
	keys := keys.NewNames("", nil)
	ends := func(fault any) { panic(fault) }
	client := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{address}},
		Silence: 100 * time.Millisecond, OnPanic: ends})
	r := &readers{store: store.NewRedis(store.RedisConfig{Main: client, Patience: 200 * time.Millisecond,
		Heartbeat: "live", Leases: true})}
	f.Cleanup(func() { r.store.Close() })
	s := &Sidecar{}
	r.profiles = profiles.New(profiles.Config{
		Redis: client, Index: "index",
		Key: func(id *profiles.Identity) string { return "rec:" + id.Text() }, Prepare: prepareProfile,
		Publish: func(context.Context, string, string) error { return nil },
	})
	f.Cleanup(func() { r.profiles.Close() })
	s.counts.profiles = r.profiles
	r.peers = peers.New(peers.Config{
		Redis: client, Channel: "news", Cards: "cards",
		Answers: func(q string) string { return "answers:" + q }, Card: func() any { return "card" },
		Gap: func() {}, Topics: map[string]func([]byte){topicProfile: s.hearProfile,
			topicCounter: hearKeys(r.store.Drop)},
	})
	f.Cleanup(func() { r.peers.Close() })
	r.documents = func() ([]rules.Document, error) {
		reply, err := client.Run(context.Background(), keys.Shared(rules.PublishedKey), "HGETALL", "rules")
		if err != nil {
			return nil, err
		}
		return documents(reply)
	}
	return r
}

// read lets everything read what is replied.
func (r *readers) read(ctx context.Context) {
	r.store.Serve([]string{"shop", "mail"})
	r.profiles.Outdate()
	user := profiles.Identity{Domain: "shop", Kind: profiles.User, Name: "ann"}
	r.profiles.Ask(ctx, []profiles.Identity{user, {Domain: "shop", Kind: profiles.Secret, Name: "ab"}})
	_, _ = r.profiles.Get(ctx, user)
	_, _ = r.peers.Cards(ctx)
	_, _ = r.documents()
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: 100, Window: time.Hour, Burst: 100}
	charges := []limit.Charge{{Key: "{k}:a", Limit: l, Cost: 1, Lease: 50}, {Key: "{k}:b",
		Limit: limit.Limit{Algorithm: limit.SlidingLog, Count: 10, Window: time.Minute}, Cost: 1}}
	for _, some := range [][]limit.Charge{charges[:1], charges} {
		request := &limit.Request{Charges: some, Decisions: make([]limit.Decision, len(some))}
		if !r.store.Try(request) {
			r.store.Ask(ctx, request)
		}
	}
	r.store.Live("shop")
}

// FuzzReplies gives every reader of replies what a hostile server may reply or publish: cards, profiles, their
// index, published rules, the heartbeat, news, and what the scripts reply. None may panic.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		"odd", "a\n{}\nb", "", "9 9 9 9 9 9", "9223372036854775807 9223372036854775807 9223372036854775807",
		"-1 -2 -3", "NaN", "\x00\xff\x01", strings.Repeat("\x00", 100),
		"shop\nnull", "shop\n" + `{"domain":"shop","text":"domain: shop"}`, "id\n" + `{"ID":7}`,
		"shop|user\nshop|ip4/24\nshop|ip4/-1\n|filling\nno class",
		`{"block":{"until":"9999-12-31T23:59:59Z"},"limits":[{"count":-1,"per":-1}]}`,
		`{"limits":[{"count":9223372036854775807,"per":9223372036854775807,"month":true}]}`,
		`{"key":{"id":"a","expires":"0001-01-01T00:00:00Z"}}`,
		`{"topic":"profile","body":{"key":"k","class":"dom|user"}}`, `{"topic":"counter","body":["a",null]}`,
		`{"topic":"profile","question":"q","body":[[[]]]}`, "WRONGTYPE x", "MOVED 1 127.0.0.1:1", "NOSCRIPT x",
		"LOADING x", "READONLY x",
	} {
		for kind := range byte(8) {
			f.Add(kind, seed)
		}
	}
	server := servers.StartRedis(f)
	forger := servers.StartForger(f, server)
	all := openReaders(f, forger.Addr)
	all.store.Ready(f.Context())
	f.Fuzz(func(t *testing.T, kind byte, text string) {
		if json.Valid([]byte(text)) {
			server.Do(t, "PUBLISH", "news", text)
		}
		reply := replyOf(kind, text)
		forger.Set(func(command []string) []byte {
			if greets(command) {
				return nil
			}
			return reply
		})
		defer forger.Set(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		all.read(ctx)
	})
}
