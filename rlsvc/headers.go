package rlsvc

import (
	"slices"
	"strconv"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// appendHeaders writes the headers of the client's response. Envoy adds them to admitted and refused ones alike.
func (s *Service) appendHeaders(b []byte, v *engine.Verdict) []byte {
	if s.config.LimitHeaders {
		b = s.appendLimitHeaders(b, v)
	}
	if d := v.Match.Domain; d != nil {
		if d.Headers == descriptors.HeadersX || d.Headers == descriptors.HeadersBoth {
			b = appendCost(b, v)
		}
		if d.Headers == descriptors.HeadersIETF || d.Headers == descriptors.HeadersBoth {
			b = appendIETF(b, v)
		}
	}
	if v.Refused {
		b = s.appendRefusal(b, v)
	}
	return s.appendID(b, v)
}

// appendID writes the id of a decision that can be looked up.
func (s *Service) appendID(b []byte, v *engine.Verdict) []byte {
	if v.ID == 0 || s.config.Plain || v.Response.Carries(wire.DecisionHeader) {
		return b
	}
	b, header, text := wire.BeginHeader(b, answerHeaders, wire.DecisionHeader)
	return wire.EndHeader(v.ID.Append(b), header, text)
}

// appendCost writes what the request costs on the reported limit, beside the x-ratelimit-* that Envoy itself writes. A
// domain of descriptor trees alone has none, because the reference server sends none. A rule's own header of that name
// goes instead, because Envoy would send both.
func appendCost(b []byte, v *engine.Verdict) []byte {
	e := v.Reported.Effect
	if e == nil || e.Tree && !v.Match.Domain.HasRules() || v.Match.Block != nil || v.Refused &&
		v.Response.Carries("x-ratelimit-cost") {
		return b
	}
	return appendCount(b, "x-ratelimit-cost", uint64(max(v.Cost, 0)))
}

// appendLimitHeaders writes the reference server's three headers.
func (s *Service) appendLimitHeaders(b []byte, v *engine.Verdict) []byte {
	i := s.headerStatus(v.Statuses)
	if i < 0 {
		return b
	}
	status := v.Statuses[i]
	b = appendCount(b, s.config.LimitHeader, saturate(status.Effect.Shown()))
	b = appendCount(b, s.config.RemainingHeader, saturate(status.Remaining))
	unix := v.Match.Domain != nil && v.Match.Domain.ResetUnix
	return appendCount(b, s.config.ResetHeader, wire.Reset(status.ResetAfter, unix, s.config.Now))
}

// headerStatus picks the status that the three headers report, or -1: the one with the least remaining, the first on
// ties, unless a limit that is not a quota is over; of those the last.
func (s *Service) headerStatus(statuses []engine.Status) int {
	picked := leastRemaining(statuses)
	for i, status := range statuses {
		if limited(status) && status.Over && !s.quota(status.Effect) {
			picked = i
		}
	}
	return picked
}

// quota reports whether a limit is one: by its own mode, or in a tree by that of the whole sidecar.
func (s *Service) quota(e *descriptors.Effect) bool {
	return e.Quota() || (s.config.Quota && e.Tree)
}

// leastRemaining is the first status with a limit and the fewest left, or -1.
func leastRemaining(statuses []engine.Status) int {
	picked := -1
	for i, status := range statuses {
		if limited(status) && (picked < 0 || status.Remaining < statuses[picked].Remaining) {
			picked = i
		}
	}
	return picked
}

// appendRefusal writes what goes with a refusal: retry-after, the rule's own headers, and the type of the body. A rule
// that names one of the two itself has its way, because Envoy would send both. A plain refusal has the rule's own
// headers alone.
func (s *Service) appendRefusal(b []byte, v *engine.Verdict) []byte {
	if waitReported(v) && !s.config.Plain && !v.Response.Carries("retry-after") {
		b = appendCount(b, "retry-after", wire.Seconds(v.RetryAfter))
	}
	if v.Response != nil {
		for _, h := range v.Response.Headers {
			b = appendHeader(b, h.Name, h.Value)
		}
	}
	if !s.config.Plain && !v.Response.Carries("content-type") {
		b = appendHeader(b, "content-type", wire.ProblemType)
	}
	return b
}

// waitReported reports whether a refused client is to come again by itself. A block ends for good or in weeks, and the
// status that Envoy sends does not show that it is one: clients would wait for nothing. Its rule may name a time.
func waitReported(v *engine.Verdict) bool {
	return v.Match.Block == nil || v.Response != nil && v.Response.RetryAfter > 0
}

// appendHeader writes one header, cleaned. One whose name cannot be a header's is left out.
func appendHeader(b []byte, name, value string) []byte {
	if !descriptors.HeaderName(name) {
		return b
	}
	b, header, text := wire.BeginHeader(b, answerHeaders, name)
	return wire.EndHeader(wire.AppendValue(b, value), header, text)
}

// appendCount writes a header whose value is a number.
func appendCount(b []byte, name string, n uint64) []byte {
	if !descriptors.HeaderName(name) {
		return b
	}
	b, header, text := wire.BeginHeader(b, answerHeaders, name)
	return wire.EndHeader(strconv.AppendUint(b, n, 10), header, text)
}

// appendIETF writes RateLimit-Policy with every limit that is reported, and RateLimit with the one that matters: the
// refusing one with the longest wait, else the one with the fewest left.
func appendIETF(b []byte, v *engine.Verdict) []byte {
	main := mainStatus(v)
	if main < 0 {
		return b
	}
	b, header, text := wire.BeginHeader(b, answerHeaders, "RateLimit-Policy")
	b = wire.EndHeader(appendPolicies(b, v.Statuses, main), header, text)

	status := v.Statuses[main]
	b, header, text = wire.BeginHeader(b, answerHeaders, "RateLimit")
	b = wire.AppendService(b, status.Effect.Title(), status.Remaining, untilMore(v, status))
	return wire.EndHeader(b, header, text)
}

// untilMore is the wait in the header RateLimit, in seconds. On a refusal it is never later than retry-after, or the
// two would contradict each other.
func untilMore(v *engine.Verdict, status engine.Status) uint64 {
	t := wire.Seconds(status.ResetAfter)
	if v.Refused && status.Over {
		t = min(t, wire.Seconds(v.RetryAfter))
	}
	return t
}

// mainStatus is the status of the refusing limit with the longest wait, else of the one with the fewest left, or -1.
func mainStatus(v *engine.Verdict) int {
	if v.Refused && v.Refusing != nil {
		for i, status := range v.Statuses {
			if status.Over && status.Effect == v.Refusing && limited(status) {
				return i
			}
		}
	}
	return leastRemaining(v.Statuses)
}

// appendPolicies lists the limits of the statuses, each once, the main one first. It ends before the list gets too long
// for a header; what is written stays well-formed.
func appendPolicies(b []byte, statuses []engine.Status, main int) []byte {
	var memory [wire.MaxPolicies]*descriptors.Effect
	start := len(b)
	b = appendPolicy(b, statuses[main].Effect)
	listed := append(memory[:0], statuses[main].Effect)
	for _, status := range statuses {
		if !limited(status) || slices.Contains(listed, status.Effect) {
			continue
		}
		before := len(b)
		b = appendPolicy(append(b, ", "...), status.Effect)
		if len(b)-start > wire.MaxText {
			return b[:before]
		}
		listed = append(listed, status.Effect)
	}
	return b
}

func appendPolicy(b []byte, e *descriptors.Effect) []byte {
	return wire.AppendPolicy(b, e.Title(), e.Limit.Count, e.Limit.Window)
}
