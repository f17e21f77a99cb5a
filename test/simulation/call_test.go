package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/sidecar"
)

// call is one request and what came of it. Instants are since the start.
type call struct {
	domain   *domain
	load     string
	user     string
	id       string // its own address; empty: none
	sidecar  int
	cost     int64 // 0: a peek; negative: a refund
	deadline time.Duration
	hung     bool // its caller has hung up

	began, ended time.Duration
	life         int  // of the server, when it began
	lost         bool // it ended in another life
	process      int  // how many processes its sidecar had before this one
	killed       bool // its sidecar died, and it never got an answer
	over         bool
	degraded     string // why Redis did not decide
	retry        int64  // seconds
}

func (c *call) String() string {
	what := "admitted"
	if c.over {
		what = fmt.Sprintf("refused, retry after %d s", c.retry)
	}
	if c.degraded != "" {
		what += ", without redis: " + c.degraded
	}
	if c.hung {
		what += ", hung up"
	}
	if c.killed {
		what = "its sidecar was killed"
	}
	return fmt.Sprintf("%s %s/%s id=%s on sidecar %d, cost %d, deadline %v: %.6f to %.6f: %s", c.load, c.domain.name,
		c.user, c.id, c.sidecar, c.cost, c.deadline, c.began.Seconds(), c.ended.Seconds(), what)
}

// bill reports whether a call pays for a request that is over.
func (c *call) bill() bool { return c.domain.special == "paid" && c.cost > 0 }

// hungThrottled reports whether its caller left while the answer may have been held: its token is given back.
func (c *call) hungThrottled() bool { return c.hung && c.domain.special == "throttled" }

// wire is the request as Envoy sends it.
func (c *call) wire() []byte {
	d := &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: c.user}}}
	if c.id != "" {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: "remote_address", Value: c.id})
	}
	d.HitsAddend = wrapperspb.UInt64(uint64(max(c.cost, -c.cost)))
	d.IsNegativeHits = c.cost < 0
	all := []*commonv3.RateLimitDescriptor{d}
	b, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: c.domain.name, Descriptors: all})
	if err != nil {
		panic(err)
	}
	return b
}

// read takes the answer in.
func (c *call) read(wire []byte) error {
	var answer ratelimitv3.RateLimitResponse
	if err := proto.Unmarshal(wire, &answer); err != nil {
		return err
	}
	c.over = answer.OverallCode == ratelimitv3.RateLimitResponse_OVER_LIMIT
	c.degraded = answer.DynamicMetadata.GetFields()["degraded"].GetStringValue()
	for _, h := range answer.ResponseHeadersToAdd {
		if h.Key == "retry-after" {
			c.retry, _ = strconv.ParseInt(h.Value, 10, 64)
		}
	}
	if answer.OverallCode == ratelimitv3.RateLimitResponse_UNKNOWN || len(answer.Statuses) != 1 {
		return fmt.Errorf("code %v with %d statuses", answer.OverallCode, len(answer.Statuses))
	}
	return nil
}

// send has the sidecar decide, at the door that the domain is asked by.
func (c *call) send(ctx context.Context, s *sidecar.Sidecar) ([]byte, error) {
	if c.domain.check {
		return s.Check(ctx, c.checkWire(), nil)
	}
	return s.ShouldRateLimit(ctx, c.wire(), nil)
}

// sidecarNow is a sidecar, nil while it is dead.
func (w *world) sidecarNow(i int) *sidecar.Sidecar {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[i]
}

// ask sends a call to its sidecar and keeps what came of it.
func (w *world) ask(c *call, leave time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.deadline > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, c.deadline)
		defer end()
	}
	if leave > 0 {
		c.hung = true
		hang := time.AfterFunc(leave, cancel)
		defer hang.Stop()
	}
	to := w.sidecarNow(c.sidecar)
	c.process = w.processOf(c.sidecar)
	if to == nil {
		return // it cannot connect
	}
	c.began, c.life = w.since(), w.lifeNow()
	answer, err := c.send(ctx, to)
	c.ended = w.since()
	c.lost = w.lifeNow() != c.life
	c.killed = w.sidecarNow(c.sidecar) != to
	if err == nil && c.domain.check {
		err = c.readCheck(answer)
	} else if err == nil {
		err = c.read(answer)
	}
	w.mu.Lock()
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	w.leases.judge(c)
	if err != nil && !c.killed {
		w.violation(c, "no right answer: %v", err)
	}
	w.trace.call(c)
}

// newCall makes a call of a load.
func (w *world) newCall(r *rand.Rand, p *loadPlan, user string) *call {
	c := &call{domain: p.domain, load: p.kind, user: user, sidecar: r.IntN(w.s.sidecars), cost: 1, deadline: p.deadline}
	if p.deadline < 0 {
		c.deadline = pick(r, deadlines...)
	}
	if r.Float64() < p.ids {
		w.mu.Lock()
		p.next++
		c.id = fmt.Sprintf("10.%d.%d.%d", p.number, p.next>>8, p.next&255)
		w.mu.Unlock()
	}
	switch {
	case r.Float64() < p.peeks:
		c.cost = 0
	case p.costs:
		c.cost = 1 + r.Int64N(4)
	}
	return c
}
