package extauthz

import (
	"slices"
	"strconv"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// appendHeader writes one header, cleaned. One whose name cannot be a header's is left out.
func (p place) appendHeader(b []byte, name, value string) []byte {
	if !descriptors.HeaderName(name) {
		return b
	}
	b, option, header, text := p.beginHeader(b, name)
	return p.endHeader(wire.AppendValue(b, value), option, header, text)
}

// appendCount writes a header of ours whose value is a number.
func (p place) appendCount(b []byte, name string, n uint64) []byte {
	b, option, header, text := p.beginHeader(b, name)
	return p.endHeader(strconv.AppendUint(b, n, 10), option, header, text)
}

// appendID writes the id of a decision that can be looked up.
func (p place) appendID(b []byte, v *engine.Verdict, own *descriptors.Response) []byte {
	if v.ID == 0 || own.Carries(wire.DecisionHeader) {
		return b
	}
	b, option, header, text := p.beginHeader(b, wire.DecisionHeader)
	return p.endHeader(v.ID.Append(b), option, header, text)
}

// appendLimit writes the headers about the limit that the verdict reports, in the domain's style. A response's own
// header of the same name wins, because Envoy would send both.
func (s *Service) appendLimit(b []byte, at place, v *engine.Verdict, own *descriptors.Response) []byte {
	if v.Reported.Effect == nil || v.Malformed != nil || v.Match.Block != nil {
		return b
	}
	style, unix := descriptors.HeadersX, false
	if d := v.Match.Domain; d != nil {
		style, unix = d.Headers, d.ResetUnix
	}
	if style == descriptors.HeadersX || style == descriptors.HeadersBoth {
		b = appendX(b, at, own, v, wire.Reset(v.Reported.ResetAfter, unix, s.config.Now))
	}
	if style == descriptors.HeadersIETF || style == descriptors.HeadersBoth {
		b = appendIETF(b, at, own, v)
	}
	return b
}

func appendX(b []byte, at place, own *descriptors.Response, v *engine.Verdict, reset uint64) []byte {
	for _, h := range [...]struct {
		name  string
		value uint64
	}{
		{"x-ratelimit-limit", uint64(v.Reported.Effect.Shown())},
		{"x-ratelimit-remaining", uint64(max(v.Reported.Remaining, 0))},
		{"x-ratelimit-reset", reset},
		{"x-ratelimit-cost", uint64(max(v.Cost, 0))},
	} {
		if !own.Carries(h.name) {
			b = at.appendCount(b, h.name, h.value)
		}
	}
	return b
}

// appendIETF writes RateLimit-Policy with every limit that applies, and RateLimit with the reported one.
func appendIETF(b []byte, at place, own *descriptors.Response, v *engine.Verdict) []byte {
	if !own.Carries("ratelimit-policy") {
		out, option, header, text := at.beginHeader(b, "ratelimit-policy")
		b = at.endHeader(appendPolicies(out, v), option, header, text)
	}
	if !own.Carries("ratelimit") {
		out, option, header, text := at.beginHeader(b, "ratelimit")
		out = wire.AppendService(out, v.Reported.Effect.Title(), v.Reported.Remaining, untilMore(v))
		b = at.endHeader(out, option, header, text)
	}
	return b
}

// untilMore is the wait in the header RateLimit, in seconds. On a refusal it is never later than retry-after, or the
// two would contradict each other.
func untilMore(v *engine.Verdict) uint64 {
	t := wire.Seconds(v.Reported.ResetAfter)
	if v.Refused && v.Reported.Over {
		t = min(t, wire.Seconds(v.RetryAfter))
	}
	return t
}

// appendPolicies lists the limits that apply and are enforced, each once, the reported one first. It ends before the
// list gets too long for a header; what is written stays well-formed.
func appendPolicies(b []byte, v *engine.Verdict) []byte {
	var memory [wire.MaxPolicies]*descriptors.Effect
	start := len(b)
	b = appendPolicy(b, v.Reported.Effect)
	listed := append(memory[:0], v.Reported.Effect)
	for _, t := range v.Match.Terms {
		if t.Effect == nil || t.Effect.Shadow() || t.Effect.Rule == descriptors.RulePenalty ||
			slices.Contains(listed, t.Effect) {
			continue
		}
		before := len(b)
		b = appendPolicy(append(b, ", "...), t.Effect)
		if len(b)-start > wire.MaxText {
			return b[:before]
		}
		listed = append(listed, t.Effect)
	}
	return b
}

func appendPolicy(b []byte, e *descriptors.Effect) []byte {
	return wire.AppendPolicy(b, e.Title(), e.Limit.Count, e.Limit.Window)
}
