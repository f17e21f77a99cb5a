package rlsvc

import (
	"math"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// Field numbers of RateLimitResponse and of the messages in it.
const (
	answerOverall  = 1
	answerStatuses = 2
	answerHeaders  = 3
	answerBody     = 5
	answerMetadata = 6

	statusCode      = 1
	statusLimit     = 2
	statusRemaining = 3
	statusReset     = 4

	currentRequests   = 1
	currentUnit       = 2
	currentName       = 3
	currentMultiplier = 4
)

// The codes of RateLimitResponse. Its zero, UNKNOWN, never leaves: Envoy takes it for an admission and counts it as
// one.
const (
	codeOK        = 1
	codeOverLimit = 2
)

func code(over bool) uint64 {
	if over {
		return codeOverLimit
	}
	return codeOK
}

// answerUnits are the numbers of RateLimitResponse.RateLimit.Unit, where the week came last.
var answerUnits = [...]uint64{
	descriptors.UnitUnknown: 0,
	descriptors.Second:      1,
	descriptors.Minute:      2,
	descriptors.Hour:        3,
	descriptors.Day:         4,
	descriptors.Month:       5,
	descriptors.Year:        6,
	descriptors.Week:        7,
}

// appendAnswer writes the RateLimitResponse that a verdict comes to. It writes exactly one status per descriptor,
// however many the verdict has: Envoy attributes them by their place.
func (s *Service) appendAnswer(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	b = wire.AppendNumber(b, answerOverall, code(v.Refused))
	for i := range max(len(req.Descriptors), req.Unread) {
		b = appendStatus(b, statusOf(v, i))
	}
	b = s.appendHeaders(b, v)
	if v.Refused {
		b = s.appendBody(b, v)
	}
	return s.appendMetadata(b, req, v)
}

// appendBare writes the answer after rendering failed: the codes alone.
func appendBare(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	b = wire.AppendNumber(b, answerOverall, code(v.Refused))
	for i := range max(len(req.Descriptors), req.Unread) {
		b = appendStatus(b, engine.Status{Over: statusOf(v, i).Over})
	}
	return b
}

// statusOf is the status of a descriptor. Those of a request that was refused unread are not in the verdict: the first
// is over the limit.
func statusOf(v *engine.Verdict, descriptor int) engine.Status {
	if descriptor < len(v.Statuses) {
		return v.Statuses[descriptor]
	}
	return engine.Status{Over: v.Excess != "" && descriptor == 0}
}

func appendStatus(b []byte, status engine.Status) []byte {
	b, mark := wire.Begin(b, answerStatuses)
	b = wire.AppendNumber(b, statusCode, code(status.Over))
	switch {
	case limited(status):
		b = appendLimit(b, status.Effect)
		b = wire.AppendNumber(b, statusRemaining, saturate(status.Remaining))
		b = appendReset(b, wire.Seconds(status.ResetAfter))
	case status.Unlimited:
		b = wire.AppendNumber(b, statusRemaining, math.MaxUint32)
	}
	return wire.End(b, mark)
}

// limited reports whether a status has numbers to show. A block refuses without a limit.
func limited(status engine.Status) bool {
	return status.Effect != nil && status.Effect.Action != descriptors.Block
}

func appendLimit(b []byte, e *descriptors.Effect) []byte {
	b, mark := wire.Begin(b, statusLimit)
	b = wire.AppendNumber(b, currentRequests, saturate(e.Limit.Count))
	if int(e.Unit) < len(answerUnits) {
		b = wire.AppendNumber(b, currentUnit, answerUnits[e.Unit])
	}
	if e.Name != "" {
		var name int
		b, name = wire.Begin(b, currentName)
		b = wire.End(wire.AppendName(b, e.Name), name)
	}
	if e.Multiplier > 1 {
		var wrapper int
		b, wrapper = wire.Begin(b, currentMultiplier)
		b = wire.End(wire.AppendNumber(b, 1, uint64(e.Multiplier)), wrapper)
	}
	return wire.End(b, mark)
}

func appendReset(b []byte, seconds uint64) []byte {
	b, mark := wire.Begin(b, statusReset)
	return wire.End(wire.AppendNumber(b, 1, seconds), mark)
}

// saturate fits a count into a uint32 field without wrapping.
func saturate(n int64) uint64 {
	return uint64(min(max(n, 0), 1<<32-1))
}
