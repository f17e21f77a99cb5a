package rlsvc

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// script returns the verdicts of the test.
type script func(req *descriptors.Request, v *engine.Verdict)

func (s script) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) { s(req, v) }

// fixed gives every request the same verdict.
func fixed(v engine.Verdict) script {
	return func(_ *descriptors.Request, out *engine.Verdict) { *out = v }
}

// echo refuses every request, by limits and with words that the client has chosen: the worst that can leave.
type echo struct{}

func (echo) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	v.Refused = true
	v.Degraded = req.Domain
	v.Response = &descriptors.Response{Message: req.Domain}
	for i := range req.Descriptors {
		d := &req.Descriptors[i]
		e := &descriptors.Effect{Name: req.Domain, Unit: descriptors.Minute, Multiplier: 1,
			Limit: limit.Limit{Count: int64(d.Hits)}}
		for _, entry := range d.Entries {
			e.Name += entry.Value
			e.Metadata = map[string]any{entry.Key: entry.Value}
			v.Response.Headers = append(v.Response.Headers, descriptors.Header{Name: entry.Key, Value: entry.Value})
		}
		v.Refusing = e
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: e, Descriptor: i})
		v.Statuses = append(v.Statuses, engine.Status{Over: i%2 == 0, Effect: e, Remaining: int64(d.Hits)})
	}
}

// perMinute is a limit as rules compile it.
func perMinute(name string, count int64) *descriptors.Effect {
	return &descriptors.Effect{
		Name: name, Rule: "rule-" + name, Unit: descriptors.Minute, Multiplier: 1,
		Limit: limit.Limit{Name: name, Algorithm: limit.FixedWindow, Count: count, Window: time.Minute},
	}
}

// ask sends a request with so many empty descriptors, and reads the answer as Envoy would.
func ask(t *testing.T, config Config, n int) *ratelimitv3.RateLimitResponse {
	t.Helper()
	var wire []byte
	for range n {
		wire = append(wire, request()...)
	}
	return askWire(t, config, wire)
}

func askWire(t *testing.T, config Config, wire []byte) *ratelimitv3.RateLimitResponse {
	t.Helper()
	out, err := New(config).Answer(t.Context(), wire, nil)
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	return answerOf(t, out)
}

func answerOf(t *testing.T, wire []byte) *ratelimitv3.RateLimitResponse {
	t.Helper()
	answer := new(ratelimitv3.RateLimitResponse)
	err := proto.Unmarshal(wire, answer)
	if err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	return answer
}

// headers returns the answer's response headers, each as "name: value".
func headers(answer *ratelimitv3.RateLimitResponse) []string {
	var out []string
	for _, h := range answer.GetResponseHeadersToAdd() {
		out = append(out, h.GetKey()+": "+h.GetValue())
	}
	return out
}
