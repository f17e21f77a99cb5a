package extauthz

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
)

// denial is the answer to a refused client.
type denial struct {
	outcome
	verdict     *engine.Verdict
	response    *descriptors.Response // the rule's own words, or nil
	wait        uint64                // seconds until the client may come back; 0: that is not known
	grpc        bool                  // the client speaks gRPC
	contentType string                // of the body; empty: a header of the rule holds it
}

func denialOf(req *descriptors.Request, v *engine.Verdict, o outcome) denial {
	d := denial{outcome: o, verdict: v, contentType: wire.ProblemType}
	if o.code != codeInvalidArgument {
		d.response = v.Response
	}
	if o.code == codeResourceExhausted || o.code == codePermissionDenied && v.RetryAfter > 0 {
		d.wait = wire.Seconds(v.RetryAfter)
	}
	var headers []identity.Header
	if req.Evidence != nil {
		headers = req.Evidence.Headers
	}
	d.grpc = speaksGRPC(headers)
	switch {
	case d.grpc, d.response.Carries("content-type"):
		// Envoy makes the body of a gRPC caller's denial its grpc-message, and names the content itself.
		d.contentType = ""
	case prefersText(headers):
		d.contentType = "text/plain"
	}
	return d
}

// bodiless reports whether a response of that status has no body. Envoy would send one, and the client would take
// it for the beginning of the next response.
func (d *denial) bodiless() bool {
	return d.status == http.StatusNoContent || d.status == http.StatusResetContent || d.status == http.StatusNotModified
}

// speaksGRPC reports whether a request came from a gRPC client.
func speaksGRPC(headers []identity.Header) bool {
	const prefix = "application/grpc"
	for _, h := range headers {
		if h.Name == "content-type" {
			return len(h.Value) >= len(prefix) && strings.EqualFold(h.Value[:len(prefix)], prefix)
		}
	}
	return false
}

// appendBody writes a problem document, or the bare message where the rule wants another type of content.
func (d *denial) appendBody(b []byte) []byte {
	if d.contentType != wire.ProblemType {
		return d.appendDetail(b, wire.AppendPlain)
	}
	kind, title := "about:blank", http.StatusText(d.status)
	if d.code == codeResourceExhausted {
		kind, title = wire.QuotaType, wire.QuotaTitle
	}
	b = wire.BeginProblem(b, kind, title, d.status)
	b = d.appendDetail(b, wire.AppendEscaped)
	var names [wire.MaxPolicies]string
	return wire.EndProblem(b, d.violated(names[:0]))
}

// appendDetail writes the reason for the client: what is wrong with the request, the reason of a block, the rule's
// message, or how long to wait.
func (d *denial) appendDetail(b []byte, text func([]byte, string) []byte) []byte {
	block := d.verdict.Match.Block
	switch {
	case d.code == codeInvalidArgument && d.verdict.Malformed.Message != "":
		return text(b, d.verdict.Malformed.Message)
	case d.code == codeInvalidArgument:
		return append(b, "The request cannot be understood."...)
	case block != nil && block.Reason != "":
		return text(b, block.Reason)
	case d.response != nil && d.response.Message != "":
		return text(b, d.verdict.Message())
	case block != nil:
		return append(b, "Requests of this kind are blocked."...)
	}
	return wire.AppendWait(b, d.wait)
}

// violated adds the names of the rules and limits that refuse, the one with the longest wait first.
func (d *denial) violated(names []string) []string {
	v := d.verdict
	if d.code == codeInvalidArgument {
		return names
	}
	if v.Refusing != nil {
		names = wire.AddName(names, v.Refusing.Title())
	}
	for i, t := range v.Match.Terms {
		refuses := i < len(v.Decisions) && v.Decisions[i].Refused()
		if refuses && t.Effect != nil && !t.Effect.Shadow() {
			names = wire.AddName(names, t.Effect.Title())
		}
	}
	return names
}

// Field numbers of google.rpc.Status, google.protobuf.Any, google.rpc.RetryInfo and google.rpc.ErrorInfo.
const (
	rpcMessage    = 2
	rpcDetails    = 3
	anyType       = 1
	anyValue      = 2
	retryDelay    = 1
	delaySeconds  = 1
	errorReason   = 1
	errorDomain   = 2
	errorMetadata = 3
	metadataKey   = 1
	metadataValue = 2
)

// appendGRPC writes what a gRPC client reads: the code, without which Envoy would send UNAVAILABLE, and the details
// that its library understands. Envoy keeps both.
func appendGRPC(b []byte, at place, d *denial) []byte {
	if !d.response.Carries("grpc-status") {
		b = at.appendCount(b, "grpc-status", d.code)
	}
	if d.response.Carries("grpc-status-details-bin") {
		return b
	}
	var memory [512]byte
	details := d.appendDetails(memory[:0])
	b, option, header, text := at.beginHeader(b, "grpc-status-details-bin")
	return at.endHeader(base64.RawStdEncoding.AppendEncode(b, details), option, header, text)
}

// appendDetails writes a google.rpc.Status.
func (d *denial) appendDetails(b []byte) []byte {
	b = wire.AppendNumber(b, statusCode, d.code)
	b, message := wire.Begin(b, rpcMessage)
	b = wire.End(d.appendDetail(b, appendShort), message)
	if d.wait > 0 {
		out, item, value := beginAny(b, "type.googleapis.com/google.rpc.RetryInfo")
		out, delay := wire.Begin(out, retryDelay)
		out = wire.End(wire.AppendNumber(out, delaySeconds, d.wait), delay)
		b = wire.End(wire.End(out, value), item)
	}
	if d.code != codeResourceExhausted {
		return b
	}
	b, item, value := beginAny(b, "type.googleapis.com/google.rpc.ErrorInfo")
	b = wire.AppendText(b, errorReason, "RATE_LIMIT_EXCEEDED")
	b = wire.AppendText(b, errorDomain, "spillway")
	if e := d.verdict.Refusing; e != nil {
		out, entry := wire.Begin(b, errorMetadata)
		out = wire.AppendText(out, metadataKey, "policy")
		out, name := wire.Begin(out, metadataValue)
		b = wire.End(wire.End(wire.AppendName(out, e.Title()), name), entry)
	}
	return wire.End(wire.End(b, value), item)
}

// appendShort appends the beginning of a text: what the details hold has to fit into a header.
func appendShort(b []byte, text string) []byte {
	size := min(len(text), wire.MaxText)
	for size > 0 && size < len(text) && !utf8.RuneStart(text[size]) {
		size--
	}
	return wire.AppendPlain(b, text[:size])
}

// beginAny opens a detail of that type. What is appended until both marks are ended is its value.
func beginAny(b []byte, kind string) (out []byte, item, value int) {
	b, item = wire.Begin(b, rpcDetails)
	b = wire.AppendText(b, anyType, kind)
	b, value = wire.Begin(b, anyValue)
	return b, item, value
}
