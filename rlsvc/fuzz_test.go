package rlsvc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// FuzzRequest sends any bytes through the door. They are read as generated code reads them; what is read is answered,
// and the answer is one that Envoy can read.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(wireOf(f, typical()))
	f.Fuzz(func(t *testing.T, wire []byte) {
		var m Message
		agree(t, &m, wire)

		s := New(Config{Engine: echo{}, LimitHeaders: true, DynamicMetadata: true, OnPanic: func(fault any) { t.Errorf("panic: %v", fault) }})
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
	})
}
