// Package xds takes rule sets from a management server: RateLimitConfig resources over one aggregated discovery stream,
// state of the world. Each response is checked whole, compiled like a rule file, and accepted or refused with the
// reason. While a response is refused or the server is away, the last accepted set stays in use.
package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

// Config is where the management server is. Server and NodeID are required.
type Config struct {
	Server   string             // host:port, or a target of gRPC such as unix:///path
	NodeID   string             // the server chooses the resources by it
	Metadata map[string]string  // of the node
	Headers  map[string]string  // sent with each stream
	TLS      func() *tls.Config // asked for each connection; nil: none

	MaxMessage int           // bytes of the largest response; 16 MiB unless given
	MaxMemory  int64         // bytes that the rules may take, estimated before they are decoded; 256 MiB unless given
	RetryFirst time.Duration // wait after the first failure; 1 s unless given
	RetryMost  time.Duration // the longest wait, at least RetryFirst; 10 s unless given
	RetryGrows float64       // factor from one wait to the next; below 1: waits stay the same. 2 unless given
	Steady     bool          // waits are not shortened at random

	MergeDomains bool                // several resources may add to one domain
	SpareDenied  bool                // charge_denied is false in all domains
	Compile      descriptors.Options // for descriptors.Compile

	// how long a response that removes domains waits for the next one; 250 ms unless given
	Settle time.Duration
	// wait before the second refusal in a row, which grows to five times as much; 1 s unless given
	RefuseGap time.Duration
	// called when a stream was opened or could not be, and when it ended; nil: none
	OnState func(up bool, reason error)
	OnPanic func(fault any) // a response made the compiler panic, and was refused; nil: none
}

// Bounds of what a server may send. They keep one response from taking the memory of the sidecar.
const (
	defaultMessage = 16 << 20
	defaultMemory  = 256 << 20
	maxResources   = 100_000
	maxDepth       = 64   // levels of descriptors
	maxTextBytes   = 4096 // of one key or value
)

// Source is the rules of a management server. It is a rules.Source. Make it with New.
type Source struct {
	cfg    Config
	mu     sync.Mutex // guards status
	status Status
}

// Status is how the source does.
type Status struct {
	Server    string
	Connected bool      `metric:"xds_connected" help:"Whether a stream to the management server is open."`
	Since     time.Time // of Connected; zero: no attempt has ended yet
	Error     string    // why the stream ended; empty while Connected
	// as the server calls it, shortened
	Version   string    `metric:"xds_info" label:"version" help:"Always 1; the label is the last accepted version."`
	Accepted  time.Time // when that was; zero: never
	Resources int       `metric:"xds_resources" help:"Resources in the last accepted response."`
	Newest    string    // the version of the newest response, accepted or not, shortened
	Refused   string    // why the newest response was refused; empty: it was accepted
	Responses int64     `metric:"xds_responses_total" help:"Responses that the management server sent."`
	Refusals  int64     `metric:"xds_refusals_total" help:"Refused responses (NACK); the last good rules stay."`
	Streams   int64     `metric:"xds_streams_total" help:"Streams that were opened to the management server."`
}

// New returns a source that has connected to nothing yet.
func New(cfg Config) *Source {
	setDefault(&cfg.MaxMessage, defaultMessage)
	setDefault(&cfg.MaxMemory, defaultMemory)
	setDefault(&cfg.RetryFirst, time.Second)
	setDefault(&cfg.RetryMost, 10*time.Second)
	setDefault(&cfg.RetryGrows, 2)
	cfg.RetryMost = max(cfg.RetryMost, cfg.RetryFirst)
	setDefault(&cfg.Settle, 250*time.Millisecond)
	setDefault(&cfg.RefuseGap, time.Second)
	if cfg.OnState == nil {
		cfg.OnState = func(bool, error) {}
	}
	if cfg.OnPanic == nil {
		cfg.OnPanic = func(any) {}
	}
	return &Source{cfg: cfg, status: Status{Server: cfg.Server}}
}

func setDefault[T int | int64 | float64 | time.Duration](to *T, value T) {
	if *to <= 0 {
		*to = value
	}
}

// Status returns how the source does now.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *Source) note(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
}

// Watch publishes each set that is accepted and each response that is refused for the first time, until ctx ends. It
// connects again whenever the stream ends. It returns nil.
func (s *Source) Watch(ctx context.Context, publish func(rules.Load)) error {
	k := newKeeper(s, publish)
	defer k.close()
	wait := s.cfg.RetryFirst
	for ctx.Err() == nil {
		heard, err := s.follow(ctx, k)
		if ctx.Err() != nil {
			return nil
		}
		s.turn(false, err)
		if heard {
			wait = s.cfg.RetryFirst
		}
		pause := time.NewTimer(s.jitter(wait))
		wait = min(s.cfg.RetryMost, time.Duration(float64(wait)*max(1, s.cfg.RetryGrows)))
		if !k.rest(ctx, pause) {
			return nil
		}
	}
	return nil
}

// jitter shortens a wait by up to a half, so that a fleet does not come back in one moment.
func (s *Source) jitter(wait time.Duration) time.Duration {
	wait = min(wait, s.cfg.RetryMost)
	if s.cfg.Steady {
		return wait
	}
	return wait/2 + rand.N(wait/2+1)
}

// turn records whether a stream is open.
func (s *Source) turn(up bool, reason error) {
	s.note(func(st *Status) {
		if st.Connected != up || st.Since.IsZero() {
			st.Since = time.Now()
		}
		st.Connected, st.Error = up, ""
		if up {
			st.Streams++
		}
		if reason != nil {
			st.Error = shorten(reason.Error(), maxReason)
		}
	})
	s.cfg.OnState(up, reason)
}

// maxReason is how many bytes of a reason are sent, logged and shown.
const maxReason = 2000

// maxVersion is the same for the version of a response.
const maxVersion = 100

// shorten cuts a text that the server may have made long.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
}
