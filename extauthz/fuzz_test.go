package extauthz

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/door/wire"
)

// FuzzCheck sends any bytes through the door. They are read as generated code reads them; what is read is answered, and
// the answer is one that Envoy can read, a denial, and clean.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(wireOf(f, typical()))
	f.Add(wireOf(f, rawly(typical())))
	f.Fuzz(func(t *testing.T, request []byte) {
		twins(new(Message)).Agree(t, request)

		s := New(Config{Engine: echo{}, OnPanic: func(fault any) { t.Errorf("panic: %v", fault) }})
		out, err := s.door.Answer(t.Context(), request, nil)
		if err != nil {
			return
		}
		answer := answerOf(t, out)
		if answer.GetStatus().GetCode() == 0 || answer.GetDeniedResponse().GetStatus().GetCode() < 400 {
			t.Errorf("answered %v, the script refuses", answer)
		}
		if dirt := dirty(answer); dirt != "" {
			t.Errorf("this leaves: %q", dirt)
		}
	})
}

var (
	printable = regexp.MustCompile(`^[ -~]*$`)
	token     = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")
)

// dirty returns something in the answer that must not leave, or nothing: Envoy puts headers into responses as they are.
func dirty(answer *authv3.CheckResponse) string {
	problem := false
	for _, option := range answer.GetDeniedResponse().GetHeaders() {
		h := option.GetHeader()
		if !printable.MatchString(h.GetValue()) || !token.MatchString(h.GetKey()) || appends(option) {
			return h.GetKey() + ": " + h.GetValue()
		}
		problem = problem || h.GetKey() == "content-type" && h.GetValue() == wire.ProblemType
	}
	for key, value := range answer.GetDynamicMetadata().GetFields() {
		if !printable.MatchString(value.GetStringValue()) {
			return key + "=" + value.GetStringValue()
		}
	}
	body := answer.GetDeniedResponse().GetBody()
	if problem && !json.Valid([]byte(body)) || strings.ContainsAny(body, "\x00\x1b\x7f") {
		return body
	}
	return ""
}
