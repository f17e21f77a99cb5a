package extauthz

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
)

// Field numbers of CheckResponse and of the messages in it.
const (
	answerStatus   = 1
	answerDenied   = 2
	answerOK       = 3
	answerMetadata = 4

	statusCode = 1

	deniedStatus  = 1
	deniedHeaders = 2
	deniedBody    = 3

	okResponseHeaders = 6

	optionHeader = 1
	optionAction = 3
)

// overwrite is HeaderValueOption's OVERWRITE_IF_EXISTS_OR_ADD. Its default would repeat a header that upstream sent.
const overwrite = 2

// The gRPC codes of answers. Envoy takes every code but 0 for a denial, and passes no code on.
const (
	codeOK                = 0
	codeInvalidArgument   = 3
	codePermissionDenied  = 7
	codeResourceExhausted = 8
)

// outcome is what a verdict comes to over this protocol.
type outcome struct {
	engine.Outcome
	code   uint64 // gRPC's
	status int    // HTTP's
}

// outcomeOf translates a verdict. It looks at nothing that could be missing: after a panic the answer is made of this
// alone.
func outcomeOf(v *engine.Verdict) outcome {
	o := outcome{Outcome: v.Outcome, status: v.HTTPStatus}
	switch o.Outcome {
	case engine.Malformed:
		o.code = codeInvalidArgument
	case engine.Blocked:
		o.code = codePermissionDenied
	case engine.Refused:
		o.code = codeResourceExhausted
	}
	return o
}

// appendAnswer writes the CheckResponse that a verdict comes to.
func (s *Service) appendAnswer(b []byte, req *descriptors.Request, v *engine.Verdict) []byte {
	o := outcomeOf(v)
	b = appendStatus(b, o)
	if o.code == codeOK {
		b, mark := wire.Begin(b, answerOK)
		at := place{field: okResponseHeaders, overwrite: true}
		b = at.appendID(s.appendLimit(b, at, v, nil), v, nil)
		return appendMetadata(wire.End(b, mark), o, v)
	}
	b, mark := wire.Begin(b, answerDenied)
	b = s.appendDenial(b, req, v, o)
	return appendMetadata(wire.End(b, mark), o, v)
}

// appendBare writes the answer after rendering has panicked: the codes alone.
func appendBare(b []byte, _ *descriptors.Request, v *engine.Verdict) []byte {
	o := outcomeOf(v)
	b = appendStatus(b, o)
	if o.code == codeOK {
		return b
	}
	b, mark := wire.Begin(b, answerDenied)
	return wire.End(appendHTTPStatus(b, o), mark)
}

// appendStatus writes the status, which is always there. Its zero is its absence inside, as generated code writes it.
func appendStatus(b []byte, o outcome) []byte {
	b, mark := wire.Begin(b, answerStatus)
	if o.code != codeOK {
		b = wire.AppendNumber(b, statusCode, o.code)
	}
	return wire.End(b, mark)
}

func appendHTTPStatus(b []byte, o outcome) []byte {
	b, mark := wire.Begin(b, deniedStatus)
	return wire.End(wire.AppendNumber(b, statusCode, uint64(o.status)), mark)
}

// appendDenial writes the inside of a DeniedHttpResponse.
func (s *Service) appendDenial(b []byte, req *descriptors.Request, v *engine.Verdict, o outcome) []byte {
	d := denialOf(req, v, o)
	at := place{field: deniedHeaders}
	b = appendHTTPStatus(b, o)
	if d.wait > 0 && !d.response.Carries("retry-after") {
		b = at.appendCount(b, "retry-after", d.wait)
	}
	b = at.appendID(s.appendLimit(b, at, v, d.response), v, d.response)
	if d.response != nil {
		for _, h := range d.response.Headers {
			b = at.appendHeader(b, h.Name, h.Value)
		}
	}
	if d.grpc {
		b = appendGRPC(b, at, &d)
	}
	if d.bodiless() {
		return b
	}
	if d.contentType != "" {
		b = at.appendHeader(b, "content-type", d.contentType)
	}
	b, mark := wire.Begin(b, deniedBody)
	return wire.End(d.appendBody(b), mark)
}

// appendMetadata writes what Envoy shows to later filters and to its access log; see the package comment.
func appendMetadata(b []byte, o outcome, v *engine.Verdict) []byte {
	if !o.Refuses() && v.Degraded == "" {
		return b
	}
	b, mark := wire.Begin(b, answerMetadata)
	if v.Degraded != "" {
		b = wire.AppendLabel(b, "degraded", v.Degraded)
	}
	if o.Refuses() {
		b = wire.AppendLabel(b, "outcome", o.String())
		if v.Malformed == nil && v.Refusing != nil {
			b = wire.AppendLabel(b, "rule", v.Refusing.Rule)
		}
	}
	return wire.End(b, mark)
}

// place is where in an answer headers stand.
type place struct {
	field     protowire.Number
	overwrite bool // an action goes with each header. On a denial Envoy reads none, and drops those with `append`
}

// beginHeader opens a header. Its name must be one that descriptors.HeaderName allows.
func (p place) beginHeader(b []byte, name string) (out []byte, option, header, value int) {
	b, option = wire.Begin(b, p.field)
	b, header, value = wire.BeginHeader(b, optionHeader, name)
	return b, option, header, value
}

func (p place) endHeader(b []byte, option, header, value int) []byte {
	b = wire.EndHeader(b, header, value)
	if p.overwrite {
		b = wire.AppendNumber(b, optionAction, overwrite)
	}
	return wire.End(b, option)
}
