// Package peers is what the sidecars of one store send each other: news, on a Redis channel, and a card of each that
// lives.
//
// News arrive within milliseconds or not at all: a sidecar whose connection was lost is notified that it may have
// missed some.
package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/redis"
)

const (
	cardEvery  = time.Second      // how often a sidecar shows its card
	cardLife   = 5 * time.Second  // how long it is shown after that
	tellWithin = time.Second      // for a server to answer
	readEvery  = 5 * time.Second  // how often the cards of the others are read at most,
	readEach   = time.Second / 10 // and how much more seldom for each of them
	leaveIn    = 100 * time.Millisecond
)

// Config sets up Peers. All fields but OnError are required.
type Config struct {
	Redis   *redis.Client
	Channel string                       // of the news
	Cards   string                       // key of the cards
	Answers func(question string) string // key of the answers to a question
	Card    func() any                   // what this sidecar shows about itself, as JSON
	// what is done about news, by topic; must not block for long
	Topics  map[string]func(body []byte)
	Gap     func()                                          // called when news may have been missed
	Reply   func(topic string, body []byte) (answer []byte) // answers a question of a peer; nil: none
	OnError func(err error)
}

// Peers is the other sidecars, and this one among them. It is safe for concurrent use.
type Peers struct {
	cfg         Config
	id          string
	unsubscribe func()
	stop        context.CancelFunc
	running     sync.WaitGroup
	asked       chan news              // questions of peers that are to be answered
	known       atomic.Pointer[[]Card] // that were read last; nil: none were
}

// news is one message.
type news struct {
	Topic    string          `json:"topic"`
	Question string          `json:"question,omitempty"` // where the answer goes; empty: none is wanted
	Body     json.RawMessage `json:"body,omitempty"`
}

// New begins to listen, and shows this sidecar's card.
func New(cfg Config) *Peers {
	if cfg.OnError == nil {
		cfg.OnError = func(error) {}
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Peers{cfg: cfg, id: rand.Text(), stop: stop, asked: make(chan news, 8)}
	p.unsubscribe = cfg.Redis.Subscribe(cfg.Channel, p.receive, cfg.Gap)
	p.running.Go(func() { p.show(ctx) })
	p.running.Go(func() { p.answer(ctx) })
	return p
}

// ID is the name of this sidecar among its peers, which it has until it ends.
func (p *Peers) ID() string { return p.id }

// Close takes the card away and ends what runs.
func (p *Peers) Close() error {
	p.unsubscribe()
	p.stop()
	p.running.Wait()
	return nil
}

// receive takes in one message, and ignores what it cannot read.
func (p *Peers) receive(text string) {
	p.cfg.Redis.Guard(func() { p.take(text) })
}

func (p *Peers) take(text string) {
	var n news
	err := json.Unmarshal([]byte(text), &n)
	if err != nil {
		return
	}
	if n.Question != "" {
		select {
		case p.asked <- n:
		default: // who asks learns that the answer is missing
		}
		return
	}
	if act := p.cfg.Topics[n.Topic]; act != nil {
		act(n.Body)
	}
}

// The topics of news that the control plane sends, too, or receives.
const (
	TopicProfile = "profile" // a profile has changed: a ChangedProfile
	TopicRules   = "rules"   // rules were published
	TopicMissing = "missing" // profiles are missing while the control plane puts them back: a MissingProfiles
)

// MissingProfiles is a question of a sidecar to the control plane: to put some profiles back before others.
type MissingProfiles struct {
	Hidden []byte `json:"hidden"` // a list of MissingProfile as JSON, hidden as identities are in keys
}

// MissingProfile is an identity whose profile was not found.
type MissingProfile struct {
	Domain string `json:"domain"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

// ChangedProfile is news about a profile. Without a key it is about all profiles of the class.
type ChangedProfile struct {
	Key   string `json:"key"`
	Class string `json:"class"`
}

// Announce sends news to all sidecars, for one that is not a sidecar.
func Announce(ctx context.Context, c *redis.Client, channel, topic string, body any) error {
	return publish(ctx, c, channel, news{Topic: topic}, body)
}

// Receive receives news on a channel, for one that is not a sidecar, until the function that it returns is called. Its
// topics must not block for long.
func Receive(c *redis.Client, channel string, topics map[string]func(body []byte)) (stop func()) {
	p := &Peers{cfg: Config{Redis: c, Topics: topics}}
	return c.Subscribe(channel, p.receive, func() {})
}

// Send publishes news to all sidecars, this one included.
func (p *Peers) Send(ctx context.Context, topic string, body any) error {
	return p.publish(ctx, news{Topic: topic}, body)
}

func (p *Peers) publish(ctx context.Context, n news, body any) error {
	return publish(ctx, p.cfg.Redis, p.cfg.Channel, n, body)
}

// publish publishes a message: of a ring on one server that answers, because every sidecar listens to all of them.
func publish(ctx context.Context, c *redis.Client, channel string, n news, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("write news about %s: %w", n.Topic, err)
	}
	n.Body = text
	message, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("write news about %s: %w", n.Topic, err)
	}
	var all error
	for _, home := range c.Everywhere() {
		_, err = publishOn(ctx, home, channel, message)
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return fmt.Errorf("send news to the other sidecars: %w", all)
}

// publishOn publishes a message on one server.
func publishOn(ctx context.Context, s *redis.Server, channel string, message []byte) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	return s.Run(ctx, "PUBLISH", channel, message)
}

// ask sends a command about a key, and waits so long for its reply.
func (p *Peers) ask(ctx context.Context, within time.Duration, key string, words ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return p.cfg.Redis.Run(ctx, key, words...)
}

// pairs calls f with each field and value of a reply to HGETALL.
func pairs(reply any, f func(field, value string)) {
	items, _ := reply.([]any)
	for pair := range slices.Chunk(items, 2) {
		if len(pair) < 2 {
			return
		}
		field, named := pair[0].(string)
		value, given := pair[1].(string)
		if named && given {
			f(field, value)
		}
	}
}
