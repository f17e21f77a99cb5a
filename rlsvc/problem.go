package rlsvc

import (
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

const (
	problemType = "application/problem+json"
	// problemHead is the part of a problem document that never changes. Type and title are those of IANA's registry. The
	// status is Envoy's default: over this protocol a service does not choose it.
	problemHead = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":`
	maxPolicies = 16 // that one answer names
)

// appendBody writes the body of a refusal: a problem document, or the bare message when the rule has a content-type of
// its own.
func appendBody(b []byte, v *engine.Verdict) []byte {
	b, mark := begin(b, answerBody)
	if carries(v.Response, "content-type") {
		b = appendDetail(b, v, appendPlain)
		return end(b, mark)
	}
	b = append(b, problemHead...)
	b = append(b, '"')
	b = appendDetail(b, v, appendEscaped)
	b = append(b, '"')
	b = appendViolated(b, v)
	b = append(b, '}')
	return end(b, mark)
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
	b = append(b, "Too many requests. Try again in "...)
	b = strconv.AppendUint(b, seconds(v.RetryAfter), 10)
	return append(b, " s."...)
}

// appendViolated names the rules and limits that refuse.
func appendViolated(b []byte, v *engine.Verdict) []byte {
	var names [maxPolicies]string
	violated := names[:0]
	violated = addPolicy(violated, v.Refusing)
	violated = addPolicy(violated, v.Match.Block)
	for _, status := range v.Statuses {
		if status.Over {
			violated = addPolicy(violated, status.Effect)
		}
	}
	if len(violated) == 0 {
		return b
	}
	b = append(b, `,"violated-policies":[`...)
	for i, name := range violated {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = appendName(b, name)
		b = append(b, '"')
	}
	return append(b, ']')
}

// addPolicy adds the name of a limit that is not yet there, while there is room.
func addPolicy(names []string, e *descriptors.Effect) []string {
	if e == nil || title(e) == "" || len(names) == cap(names) {
		return names
	}
	for _, name := range names {
		if name == title(e) {
			return names
		}
	}
	return append(names, title(e))
}

// appendEscaped appends text as the inside of a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendEscaped(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&0xf])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// appendPlain appends text without control bytes but line breaks and tabs.
func appendPlain(b []byte, text string) []byte {
	for _, r := range text {
		if (r < ' ' && r != '\n' && r != '\r' && r != '\t') || r == 0x7f {
			continue
		}
		b = utf8.AppendRune(b, r)
	}
	return b
}

// appendString writes a string field with its bytes made valid UTF-8.
func appendString(b []byte, number protowire.Number, text string) []byte {
	return appendText(b, number, validText(text))
}
