package extauthz

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// script returns the verdicts of the test.
type script func(req *descriptors.Request, v *engine.Verdict)

// Decide concludes the verdict, as the engine does.
func (s script) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	s(req, v)
	v.Conclude()
}

// fixed gives every request the same verdict.
func fixed(v engine.Verdict) script {
	return func(_ *descriptors.Request, out *engine.Verdict) { *out = v }
}

// echo refuses every request, by limits and with words that the client has chosen: the worst that can leave.
type echo struct{}

func (echo) Decide(_ context.Context, req *descriptors.Request, v *engine.Verdict) {
	e := &descriptors.Effect{Name: req.Subject.Path, Rule: req.Domain,
		Limit: limit.Limit{Count: int64(len(req.Subject.Host)), Window: time.Minute}}
	v.Refused, v.Refusing, v.Degraded = true, e, req.Evidence.Principal
	v.Reported = engine.Status{Over: true, Effect: e, Remaining: int64(len(req.Subject.Path))}
	v.Response = &descriptors.Response{Message: req.Subject.Method}
	v.Match.Domain = &descriptors.CompiledDomain{Headers: descriptors.HeadersBoth}
	for _, h := range req.Evidence.Headers {
		if h.Name == "content-type" && h.Value == wire.ProblemType {
			continue // the rule demands this answer
		}
		v.Response.Headers = append(v.Response.Headers, descriptors.Header(h))
	}
	for _, entry := range req.Subject.Entries {
		other := &descriptors.Effect{Name: entry.Key + entry.Value, Limit: e.Limit}
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: other})
		v.Decisions = append(v.Decisions, limit.Decision{Outcome: limit.Refused})
	}
	switch len(req.Subject.Entries) {
	case 1:
		v.Match.Block = &descriptors.Effect{Action: descriptors.Block,
			Measure: descriptors.Measure{Reason: req.Subject.Host}}
	case 2:
		v.Malformed = &identity.Refusal{Message: req.Subject.Host}
	}
	v.Conclude()
}

// perMinute is a limit as rules compile it.
func perMinute(name string, count int64) *descriptors.Effect {
	return &descriptors.Effect{
		Name: name, Rule: "rule-" + name, Unit: descriptors.Minute, Multiplier: 1,
		Limit: limit.Limit{Name: name, Algorithm: limit.TokenBucket, Count: count, Window: time.Minute, Burst: count},
	}
}

// ask sends a request with these headers, given as "name: value", and reads the answer as Envoy would.
func ask(t *testing.T, config Config, headers ...string) *authv3.CheckResponse {
	t.Helper()
	http := &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/", Host: "shop.example",
		Headers: map[string]string{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		http.Headers[name] = value
	}
	return askWire(t, config, wireOf(t, requestOf(http)))
}

func requestOf(http *authv3.AttributeContext_HttpRequest) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: http}}}
}

func askWire(t *testing.T, config Config, request []byte) *authv3.CheckResponse {
	t.Helper()
	out, err := New(config).door.Answer(t.Context(), request, nil)
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	return answerOf(t, out)
}

func answerOf(t *testing.T, wire []byte) *authv3.CheckResponse {
	t.Helper()
	answer := new(authv3.CheckResponse)
	err := proto.Unmarshal(wire, answer)
	if err != nil {
		t.Fatalf("the answer cannot be read: %v", err)
	}
	if answer.GetStatus() == nil {
		t.Fatalf("the answer has no status: %v", answer)
	}
	if len(answer.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("the answer has unknown fields: %v", answer)
	}
	return answer
}

func wireOf(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	wire := must.Get(proto.Marshal(m))(tb)
	return wire
}

// printed is an answer, one fact per line.
func printed(answer *authv3.CheckResponse) string {
	var out strings.Builder
	fmt.Fprintf(&out, "code %d\n", answer.GetStatus().GetCode())
	if denied := answer.GetDeniedResponse(); denied != nil {
		fmt.Fprintf(&out, "denied %d\n", denied.GetStatus().GetCode())
		tellHeaders(&out, denied.GetHeaders())
		fmt.Fprintf(&out, "body %s\n", denied.GetBody())
	}
	if ok := answer.GetOkResponse(); ok != nil {
		out.WriteString("ok\n")
		tellHeaders(&out, ok.GetResponseHeadersToAdd())
		if len(ok.GetHeaders())+len(ok.GetHeadersToRemove())+len(ok.GetQueryParametersToSet()) > 0 {
			fmt.Fprintf(&out, "the request is changed: %v\n", ok)
		}
	}
	for _, key := range []string{"degraded", "outcome", "rule"} {
		if v := answer.GetDynamicMetadata().GetFields()[key]; v != nil {
			fmt.Fprintf(&out, "metadata %s=%s\n", key, v.GetStringValue())
		}
	}
	return out.String()
}

func tellHeaders(out *strings.Builder, options []*corev3.HeaderValueOption) {
	for _, o := range options {
		fmt.Fprintf(out, "%s: %s", o.GetHeader().GetKey(), o.GetHeader().GetValue())
		if appends(o) {
			out.WriteString(" (append)")
		}
		if o.GetAppendAction() != corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD {
			fmt.Fprintf(out, " (%v)", o.GetAppendAction())
		}
		out.WriteString("\n")
	}
}

// appends reports whether a header has the field that Envoy calls deprecated and still obeys: it drops such headers of
// a denial.
func appends(o *corev3.HeaderValueOption) bool {
	reflected := o.ProtoReflect()
	return reflected.Has(reflected.Descriptor().Fields().ByName("append"))
}
