package rlsvc

import (
	"net/http"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/wire"
)

// appendBody writes the body of a refusal: a problem document, or the bare message when the rule has a content-type of
// its own.
func appendBody(b []byte, v *engine.Verdict) []byte {
	b, mark := wire.Begin(b, answerBody)
	if v.Response.Carries("content-type") {
		b = appendDetail(b, v, wire.AppendPlain)
		return wire.End(b, mark)
	}
	// The status is Envoy's default: over this protocol a service does not choose it.
	b = wire.BeginProblem(b, wire.QuotaType, wire.QuotaTitle, http.StatusTooManyRequests)
	b = appendDetail(b, v, wire.AppendEscaped)
	var names [wire.MaxPolicies]string
	b = wire.EndProblem(b, violated(names[:0], v))
	return wire.End(b, mark)
}

// appendDetail tells the client why: the reason of a block, the rule's message, or how long to wait.
func appendDetail(b []byte, v *engine.Verdict, text func([]byte, string) []byte) []byte {
	block := v.Match.Block
	switch {
	case block != nil && block.Reason != "":
		return text(b, block.Reason)
	case v.Response != nil && v.Response.Message != "":
		return text(b, v.Response.Message)
	case block != nil:
		return append(b, "Requests of this kind are blocked."...)
	}
	return wire.AppendWait(b, wire.Seconds(v.RetryAfter))
}

// violated adds the names of the rules and limits that refuse.
func violated(names []string, v *engine.Verdict) []string {
	names = addPolicy(names, v.Refusing)
	names = addPolicy(names, v.Match.Block)
	for _, status := range v.Statuses {
		if status.Over {
			names = addPolicy(names, status.Effect)
		}
	}
	return names
}

func addPolicy(names []string, e *descriptors.Effect) []string {
	if e == nil {
		return names
	}
	return wire.AddName(names, e.Title())
}
