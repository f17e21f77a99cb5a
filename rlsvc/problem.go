package rlsvc

import (
	"net/http"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// appendBody writes the body of a refusal: a problem document, or the bare message when the rule has a content-type of
// its own. A plain refusal has the rule's message or none.
func (s *Service) appendBody(b []byte, v *engine.Verdict) []byte {
	if s.config.Plain && (v.Response == nil || v.Response.Message == "") {
		return b
	}
	b, mark := wire.Begin(b, answerBody)
	if s.config.Plain || v.Response.Carries("content-type") {
		b = appendDetail(b, v, wire.AppendPlain)
		return wire.End(b, mark)
	}
	kind, title, status := problemOf(v)
	b = wire.BeginProblem(b, kind, title, status)
	b = appendDetail(b, v, wire.AppendEscaped)
	var names [wire.MaxPolicies]string
	b = wire.EndProblem(b, violated(names[:0], v))
	return wire.End(b, mark)
}

// problemOf is what a refusal is called. That of a limit has Envoy's default status, because over this protocol a
// service does not choose it. A block is not a quota: it has the title and status that it has over ext_authz.
func problemOf(v *engine.Verdict) (kind, title string, status int) {
	if v.Match.Block == nil {
		return wire.QuotaType, wire.QuotaTitle, http.StatusTooManyRequests
	}
	status = http.StatusForbidden
	if v.Response != nil && v.Response.Status != 0 {
		status = v.Response.Status
	}
	return "about:blank", http.StatusText(status), status
}

// appendDetail writes the reason for the client: the reason of a block, the rule's message, or how long to wait.
func appendDetail(b []byte, v *engine.Verdict, text func([]byte, string) []byte) []byte {
	block := v.Match.Block
	switch {
	case block != nil && block.Reason != "":
		return text(b, block.Reason)
	case v.Response != nil && v.Response.Message != "":
		return text(b, v.Message())
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
