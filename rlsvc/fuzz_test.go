package rlsvc

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/door/wire"
)

// FuzzRequest sends any bytes through the door. They are read as generated code reads them; what is read is answered,
// and the answer is one that Envoy can read.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(wireOf(f, typical()))
	f.Fuzz(func(t *testing.T, wire []byte) {
		var m Message
		twins(&m).Agree(t, wire)

		s := New(Config{Engine: echo{}, LimitHeaders: true, DynamicMetadata: true, OnPanic: func(fault any) {
			t.Errorf("panic: %v", fault)
		}})
		out, err := s.Answer(t.Context(), wire, nil)
		if err != nil {
			return
		}
		var answer ratelimitv3.RateLimitResponse
		err = proto.Unmarshal(out, &answer)
		if err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if len(answer.GetStatuses()) != len(m.Request.Descriptors) {
			t.Errorf("%d statuses for %d descriptors", len(answer.GetStatuses()), len(m.Request.Descriptors))
		}
		if answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("overall code %v, the script refuses", answer.GetOverallCode())
		}
		if dirt := dirty(&answer); dirt != "" {
			t.Errorf("this leaves: %q", dirt)
		}
	})
}

// dirty returns something in the answer that must not leave, or nothing: Envoy puts names and headers into responses as
// they are.
func dirty(answer *ratelimitv3.RateLimitResponse) string {
	printable := regexp.MustCompile(`^[ -~]*$`)
	for _, s := range answer.GetStatuses() {
		name := s.GetCurrentLimit().GetName()
		if !printable.MatchString(name) || strings.Contains(name, `"`) || len(name) > wire.MaxText {
			return name
		}
	}
	for _, h := range answer.GetResponseHeadersToAdd() {
		if !printable.MatchString(h.GetValue()) ||
			!regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$").MatchString(h.GetKey()) {
			return h.GetKey() + ": " + h.GetValue()
		}
		if strings.EqualFold(h.GetKey(), "content-type") && h.GetValue() != wire.ProblemType {
			return "" // the body is plain text
		}
	}
	if !json.Valid(answer.GetRawBody()) {
		return string(answer.GetRawBody())
	}
	return ""
}
