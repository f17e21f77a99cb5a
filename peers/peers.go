// Package peers is what the sidecars of one store tell each other: news, on a Redis channel, and a card of each that lives.
//
// News are heard within milliseconds or not at all: a sidecar whose connection was lost is told that it may have missed some.
package peers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
)

const (
	cardEvery  = time.Second     // how often a sidecar shows its card
	cardLife   = 5 * time.Second // how long it is shown after that
	tellWithin = time.Second     // for a server to answer
	leaveIn    = 100 * time.Millisecond
)

// Config sets up Peers. All fields but OnError are required.
type Config struct {
	Fleet   *fleet.Fleet
	Channel string                                          // of the news
	Cards   string                                          // key of the cards
	Answers func(question string) string                    // key of the answers to a question
	Card    func() any                                      // what this sidecar shows about itself, as JSON
	Topics  map[string]func(body []byte)                    // what is done about news, by topic; must not block for long
	Gap     func()                                          // called when news may have been missed
	Reply   func(topic string, body []byte) (answer []byte) // answers a question of a peer; nil: none
	OnError func(err error)
}

// Peers is the other sidecars, and this one among them. It is safe for concurrent use.
type Peers struct {
	cfg     Config
	id      string
	hush    func() // ends listening
	stop    context.CancelFunc
	running sync.WaitGroup
	asked   chan news // questions of peers that are to be answered
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
	p.hush = cfg.Fleet.Listen(fleet.Listener{Channel: cfg.Channel, Message: p.hear, Gap: cfg.Gap})
	p.running.Go(func() { p.show(ctx) })
	p.running.Go(func() { p.answer(ctx) })
	return p
}

// ID is the name of this sidecar among its peers, which it has until it ends.
func (p *Peers) ID() string { return p.id }

// Close takes the card away and ends what runs.
func (p *Peers) Close() error {
	p.hush()
	p.stop()
	p.running.Wait()
	return nil
}

// hear takes in one message, and ignores what it cannot read.
func (p *Peers) hear(text string) {
	p.cfg.Fleet.Guard(func() { p.take(text) })
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
		default: // who asks is told that there is no answer
		}
		return
	}
	if act := p.cfg.Topics[n.Topic]; act != nil {
		act(n.Body)
	}
}

// The topics of news that the control plane tells, too, or hears.
const (
	TopicRecord  = "record"  // a record has changed: a ChangedRecord
	TopicRules   = "rules"   // rules were published
	TopicMissing = "missing" // records are missing while the control plane puts them back: a MissingRecords
)

// MissingRecords is a question of a sidecar to the control plane: to put some records back before others.
type MissingRecords struct {
	Hidden []byte `json:"hidden"` // a list of MissingRecord as JSON, hidden as identities are in keys
}

// MissingRecord is an identity whose record was not found.
type MissingRecord struct {
	Domain string `json:"domain"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

// ChangedRecord is news about a record. Without a key it is about all records of the class.
type ChangedRecord struct {
	Key   string `json:"key"`
	Class string `json:"class"`
}

// homes are the servers that a message is published on: of a ring one that answers, because every sidecar listens to all of them.
func homes(f *fleet.Fleet, channel string) []*fleet.Node {
	if f.Everywhere() {
		return f.Nodes()
	}
	n, _ := f.Place(channel)
	return []*fleet.Node{n}
}

// Announce tells news to all sidecars, for one that is not a sidecar.
func Announce(ctx context.Context, f *fleet.Fleet, channel, topic string, body any) error {
	return publish(ctx, f, channel, news{Topic: topic}, body)
}

// Hear hears news on a channel, for one that is not a sidecar, until the function that it returns is called. Its topics must not block for long.
func Hear(f *fleet.Fleet, channel string, topics map[string]func(body []byte)) (stop func()) {
	p := &Peers{cfg: Config{Fleet: f, Topics: topics}}
	return f.Listen(fleet.Listener{Channel: channel, Message: p.hear, Gap: func() {}})
}

// Tell publishes news to all sidecars, this one included.
func (p *Peers) Tell(ctx context.Context, topic string, body any) error {
	return p.publish(ctx, news{Topic: topic}, body)
}

func (p *Peers) publish(ctx context.Context, n news, body any) error {
	return publish(ctx, p.cfg.Fleet, p.cfg.Channel, n, body)
}

func publish(ctx context.Context, f *fleet.Fleet, channel string, n news, body any) error {
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
	for _, home := range homes(f, channel) {
		_, err = home.Ask(within(ctx), channel, "PUBLISH", channel, string(message))
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return fmt.Errorf("tell the other sidecars: %w", all)
}

func within(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return tellWithin
	}
	return min(tellWithin, time.Until(deadline))
}
