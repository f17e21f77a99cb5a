package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// member is one sidecar among peers, which notes what it receives.
type member struct {
	*Peers
	mu       sync.Mutex // guards all below
	received []string
	gaps     int
}

func (m *member) has(text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.received, text) {
		return fmt.Errorf("it received %q", m.received)
	}
	return nil
}

func (m *member) missed(times int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gaps < times {
		return fmt.Errorf("it missed news %d times", m.gaps)
	}
	return nil
}

func join(t *testing.T, at redis.Servers, name string) *member {
	t.Helper()
	f := redis.New(redis.Config{Servers: at})
	t.Cleanup(f.Close)
	m := &member{}
	m.Peers = New(Config{
		Redis: f, Channel: "news", Cards: "cards", Answers: func(q string) string { return "answers:" + q },
		Card: func() any { return name },
		Topics: map[string]func([]byte){"hello": func(body []byte) {
			var text string
			if json.Unmarshal(body, &text) == nil {
				m.mu.Lock()
				m.received = append(m.received, text)
				m.mu.Unlock()
			}
		}},
		Gap:   func() { m.mu.Lock(); m.gaps++; m.mu.Unlock() },
		Reply: func(topic string, _ []byte) []byte { return []byte(topic + " of " + name) },
	})
	t.Cleanup(func() { m.Close() })
	return m
}

func TestNewsCardsAndQuestions(t *testing.T) {
	server := servers.StartRedis(t)
	at := redis.Servers{Addresses: []string{server.Addr}}
	one, other := join(t, at, "one"), join(t, at, "other")
	for _, m := range []*member{one, other} {
		servers.Await(t, "the subscription", func() error { return m.missed(1) })
	}
	must.Do(t, one.Send(t.Context(), "hello", "world"))
	for _, m := range []*member{one, other} {
		servers.Await(t, "the news", func() error { return m.has("world") })
	}
	servers.Await(t, "both cards", func() error {
		cards, err := other.Cards(t.Context())
		if err == nil && len(cards) != 2 {
			err = fmt.Errorf("there are %d cards", len(cards))
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answers, missing, err := other.Ask(ctx, "top", nil)
	if err != nil || len(missing) > 0 || string(answers[one.ID()]) != "top of one" ||
		string(answers[other.ID()]) != "top of other" {
		t.Errorf("the answers are %q, missing %q, %v", answers, missing, err)
	}
	// A sidecar that ends takes its card away.
	one.Close()
	servers.Await(t, "the card to go", func() error {
		cards, err := other.Cards(t.Context())
		if err == nil && (len(cards) != 1 || !cards[0].Self) {
			err = fmt.Errorf("the cards are %v", cards)
		}
		return err
	})
}

// TestANewSidecarTakesTheCardsOfTheDeadAway starts one beside a card that has ended, which no reader asks for.
func TestANewSidecarTakesTheCardsOfTheDeadAway(t *testing.T) {
	server := servers.StartRedis(t)
	at := redis.Servers{Addresses: []string{server.Addr}}
	join(t, at, "one")
	server.Do(t, "HSET", "cards", "dead", `1 "killed"`)
	other := join(t, at, "other")
	servers.Await(t, "the card of the new sidecar", func() error {
		if server.Do(t, "HGET", "cards", other.ID()) == nil {
			return errors.New("the answer is missing")
		}
		return nil
	})
	if card := server.Do(t, "HGET", "cards", "dead"); card != nil {
		t.Errorf("the card of the dead is %v", card)
	}
}

func TestABrokenSubscriptionIsMadeAgain(t *testing.T) {
	server := servers.StartRedis(t)
	m := join(t, redis.Servers{Addresses: []string{server.Addr}}, "one")
	servers.Await(t, "the subscription", func() error { return m.missed(1) })
	server.Kill(t)
	server.Start(t)
	servers.Await(t, "the second subscription", func() error { return m.missed(2) })
	servers.Await(t, "news after that", func() error {
		err := m.Send(t.Context(), "hello", "again")
		if err != nil {
			return err
		}
		return m.has("again")
	})
}

func TestNewsInAClusterAndInARing(t *testing.T) {
	cluster := servers.StartCluster(t)
	ring := []string{servers.StartRedis(t).Addr, servers.StartRedis(t).Addr}
	for name, at := range map[string]redis.Servers{
		"cluster": {Kind: redis.Cluster, Addresses: cluster.Addrs()[:2]}, "ring": {Kind: redis.Ring, Addresses: ring},
	} {
		one, other := join(t, at, "one"), join(t, at, "other")
		servers.Await(t, "the subscription in a "+name, func() error { return other.missed(1) })
		servers.Await(t, "news in a "+name, func() error {
			err := one.Send(t.Context(), "hello", name)
			if err != nil {
				return err
			}
			return other.has(name)
		})
	}
}

// TestAPoisonedCardIsRemoved writes what is not a card among the cards: those of sidecars are shown all the same, and
// it is gone.
func TestAPoisonedCardIsRemoved(t *testing.T) {
	server := servers.StartRedis(t)
	m := join(t, redis.Servers{Addresses: []string{server.Addr}}, "one")
	for name, poison := range map[string]string{
		"no blank": "garbage", "empty": "", "no number": "soon {}", "an endless life": "99999999999999999999 {}",
		"a life of an hour": fmt.Sprint(time.Now().Add(time.Hour).UnixMilli(), " {}"),
		"below zero":        "-5 {}", "infinite": "inf {}", "hexadecimal": "0xffffffffffff {}",
	} {
		t.Run(name, func(t *testing.T) {
			server.Do(t, "HSET", "cards", "zzz", poison)
			servers.Await(t, "the card of the sidecar alone", func() error {
				cards, err := m.Cards(t.Context())
				if err != nil {
					return err
				}
				if len(cards) != 1 || cards[0].ID != m.ID() {
					return fmt.Errorf("%v", cards)
				}
				return nil
			})
			if left := server.Do(t, "HEXISTS", "cards", "zzz"); left != int64(0) {
				t.Errorf("the poisoned card is still there")
			}
		})
	}
}

// TestNewsThatMakeAReaderPanic: a panic while news are taken in is reported, and later news arrive.
func TestNewsThatMakeAReaderPanic(t *testing.T) {
	server := servers.StartRedis(t)
	faults, received := make(chan any, 1), make(chan string, 1)
	f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{server.Addr}},
		OnPanic: func(fault any) { faults <- fault }})
	t.Cleanup(f.Close)
	t.Cleanup(Receive(f, "news", map[string]func([]byte){
		"bad":  func([]byte) { panic("poison") },
		"good": func(body []byte) { received <- string(body) },
	}))
	publish := func(topic string) func() error {
		return func() error {
			if got := server.Do(t, "PUBLISH", "news", `{"topic":"`+topic+`","body":1}`); got != int64(1) {
				return fmt.Errorf("%v listeners", got)
			}
			return nil
		}
	}
	servers.Await(t, "a listener", publish("bad"))
	if fault := <-faults; fault != "poison" {
		t.Errorf("the fault is %v", fault)
	}
	servers.Await(t, "a listener", publish("good"))
	if body := <-received; body != "1" {
		t.Errorf("the news are %q", body)
	}
}

// TestASubscriptionThatAnnouncesTooMuch: the server announces more than there is memory, and the subscription is made
// again.
func TestASubscriptionThatAnnouncesTooMuch(t *testing.T) {
	server := servers.StartRedis(t)
	forger := servers.StartForger(t, server)
	for _, reply := range []string{"*2147483647\r\n", "*4611686018427387904\r\n", "$34359738368\r\n",
		"$9223372036854775805\r\n", ">2147483647\r\n"} {
		f := redis.New(redis.Config{Servers: redis.Servers{Addresses: []string{forger.Addr}}})
		forger.Set(func(command []string) []byte {
			if strings.EqualFold(command[0], "SUBSCRIBE") {
				return []byte(reply)
			}
			return nil
		})
		news := make(chan string, 1)
		stop := Receive(f, "news", map[string]func([]byte){"hello": func(body []byte) { news <- string(body) }})
		forger.AwaitMet(t, 2)
		forger.Set(nil)
		servers.Await(t, "a listener", func() error {
			if server.Do(t, "PUBLISH", "news", `{"topic":"hello","body":1}`) == int64(0) {
				return errors.New("none")
			}
			return nil
		})
		if body := <-news; body != "1" {
			t.Errorf("the news are %q", body)
		}
		stop()
		f.Close()
		servers.Await(t, "the end of the subscription", func() error {
			if left := server.Do(t, "PUBSUB", "NUMSUB", "news"); left.([]any)[1] != int64(0) {
				return fmt.Errorf("%v", left)
			}
			return nil
		})
	}
}
