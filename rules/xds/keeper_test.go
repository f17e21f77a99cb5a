package xds

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/test/must"
)

// answers is a stream that keeps what the client answers.
type answers struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	sent []*discoveryv3.DiscoveryRequest
	at   []time.Time
}

func (a *answers) Send(r *discoveryv3.DiscoveryRequest) error {
	a.sent = append(a.sent, r)
	a.at = append(a.at, time.Now())
	return nil
}

// desk is a keeper with a stream and what it published.
type desk struct {
	*keeper
	answers answers
	stream  *stream
	loads   []rules.Load
}

func newDesk(cfg Config) *desk {
	d := &desk{}
	d.keeper = newKeeper(New(cfg), func(l rules.Load) { d.loads = append(d.loads, l) })
	d.stream = &stream{AggregatedDiscoveryService_StreamAggregatedResourcesClient: &d.answers}
	return d
}

func (d *desk) get(t *testing.T, r *discoveryv3.DiscoveryResponse) {
	t.Helper()
	must.Do(t, d.handle(t.Context(), d.stream, r))
}

// inUse are the domains that were published last.
func (d *desk) domains() []string { return d.loads[len(d.loads)-1].Set.Domains() }

const (
	shopOnly  = `{"domain": "shop", "descriptors": [{"key": "k", "rateLimit": {"unit": "DAY", "requestsPerUnit": 1}}]}`
	otherOnly = `{"domain": "other"}`
	noUnit    = `{"domain": "shop", "descriptors": [{"key": "k", "rateLimit": {}}]}`
)

// TestNoStormOfRefusals: a server that sends the same bad response after each refusal gets the first at once and a few
// a minute after that.
func TestNoStormOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(Config{})
		bad, began := response(t, "2", parse(t, noUnit)), time.Now()
		d.get(t, response(t, "1", parse(t, shopOnly)))
		for time.Since(began) < time.Minute {
			d.get(t, bad)
		}
		if first := d.answers.at[1].Sub(began); first > 100*time.Millisecond {
			t.Errorf("the first refusal came after %v", first)
		}
		nacks := d.source.Status().Refusals
		if nacks < 10 || nacks > 20 {
			t.Errorf("%d refusals in a minute, want 10 to 20", nacks)
		}
		if len(d.loads) != 2 || d.loads[1].Set != nil {
			t.Errorf("%d loads were published, want the good one and one refusal", len(d.loads))
		}
		nack := d.answers.sent[1]
		if nack.GetVersionInfo() != "1" || nack.GetResponseNonce() != "n2" || nack.GetErrorDetail().GetMessage() == "" {
			t.Errorf("the refusal is %v", nack)
		}
		d.get(t, response(t, "3", parse(t, shopOnly)))
		if last := d.answers.sent[len(d.answers.sent)-1]; last.GetErrorDetail() != nil || last.GetVersionInfo() != "3" {
			t.Errorf("the mended response is answered by %v", last)
		}
		began = time.Now()
		d.get(t, bad)
		if first := d.answers.at[len(d.answers.at)-1].Sub(began); first > 0 {
			t.Errorf("after a good response the first refusal waits %v", first)
		}
	})
}

// TestTheSameContentIsTakenOnce: a new version with the same resources changes nothing.
func TestTheSameContentIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(Config{})
		for _, version := range []string{"1", "2", "", "1"} {
			d.get(t, response(t, version, parse(t, shopOnly)))
		}
		if len(d.loads) != 1 || len(d.answers.sent) != 4 {
			t.Errorf("%d loads and %d answers, want 1 and 4", len(d.loads), len(d.answers.sent))
		}
	})
}

// TestASmallerWorldWaits: a server that has just started sends the domains of one Gateway, and those of the other a
// moment later.
func TestASmallerWorldWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(Config{})
		both := response(t, "9", parse(t, shopOnly), parse(t, otherOnly))
		d.get(t, both)
		d.get(t, response(t, "1", parse(t, shopOnly)))
		d.get(t, both)
		d.pause(t, time.Second)
		if len(d.loads) != 1 {
			t.Errorf("a world that stood for a moment was published: %d loads", len(d.loads))
		}
		d.get(t, response(t, "2", parse(t, shopOnly)))
		if len(d.loads) != 1 {
			t.Error("a smaller world was published at once")
		}
		d.pause(t, time.Second)
		if len(d.loads) != 2 || len(d.domains()) != 1 {
			t.Errorf("a smaller world that stands was not published: %d loads", len(d.loads))
		}
		d.get(t, response(t, ""))
		d.pause(t, time.Second)
		if len(d.loads) != 3 || len(d.domains()) != 0 {
			t.Error("an empty world was not published")
		}
	})
}

func (d *desk) pause(t *testing.T, long time.Duration) {
	t.Helper()
	d.rest(t.Context(), time.NewTimer(long))
}

// TestAFloodOfResponses: a server that sends without end takes a fifth of a core at most.
func TestAFloodOfResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, began := newDesk(Config{}), time.Now()
		for time.Since(began) < time.Second {
			d.get(t, response(t, "1", parse(t, shopOnly)))
		}
		if n := len(d.answers.sent); n > 51 {
			t.Errorf("%d responses were handled in a second, want at most 51", n)
		}
	})
}

// TestWaitsGrow: the waits between attempts double up to the bound and are shortened at random.
func TestWaitsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		s := New(Config{Server: "unix:///does/not/exist", NodeID: "n", OnState: func(up bool, reason error) {
			if up || reason == nil {
				t.Error("connected to nothing")
			}
			if tries = append(tries, time.Now()); len(tries) == 8 {
				cancel()
			}
		}})
		err := s.Watch(ctx, func(rules.Load) {})
		if err != nil || !errors.Is(ctx.Err(), context.Canceled) {
			t.Errorf("Watch = %v", err)
		}
		for i, seconds := range []int{1, 2, 4, 8, 10, 10, 10} {
			got, want := tries[i+1].Sub(tries[i]), time.Duration(seconds)*time.Second
			if got < want/2 || got > want {
				t.Errorf("wait %d is %v, want %v, shortened by up to a half", i+1, got, want)
			}
		}
	})
}

func TestASilentServerIsNamedAsSuch(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	err := New(Config{Server: "rules:18000"}).explain(ctx,
		errors.New("context canceled while waiting for connections to become ready"))
	if want := "xds: rules:18000: no answer within 10s"; err.Error() != want {
		t.Errorf("a server that does not answer is explained by %q, want %q", err, want)
	}
}
