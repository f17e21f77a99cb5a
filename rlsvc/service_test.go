package rlsvc

import (
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

// codes returns the overall code and those of the statuses.
func codes(answer *ratelimitv3.RateLimitResponse) string {
	out := answer.GetOverallCode().String() + ":"
	for _, s := range answer.GetStatuses() {
		out += " " + s.GetCode().String()
	}
	return out
}

func TestAnEmptyVerdictAdmitsAndIsCounted(t *testing.T) {
	var faults []any
	answer := ask(t, Config{
		Engine:  script(func(*descriptors.Request, *engine.Verdict) {}),
		OnPanic: func(fault any) { faults = append(faults, fault) },
	}, 2)
	if got := codes(answer); got != "OK: OK OK" {
		t.Errorf("answered %s", got)
	}
	if len(faults) != 1 {
		t.Errorf("told of %v, want one fault", faults)
	}
}

func TestWhatCannotBeRenderedKeepsItsCodes(t *testing.T) {
	cases := []struct {
		name    string
		verdict engine.Verdict
		want    string
	}{
		{"admitted", engine.Verdict{Statuses: []engine.Status{{}, {}}}, "OK: OK OK"},
		{"refused", engine.Verdict{Refused: true, Statuses: []engine.Status{{Over: true}, {}}},
			"OVER_LIMIT: OVER_LIMIT OK"},
		{"fewer statuses than descriptors", engine.Verdict{Refused: true, Statuses: []engine.Status{{Over: true}}},
			"OVER_LIMIT: OVER_LIMIT OK"},
		{"no verdict", engine.Verdict{}, "OK: OK OK"},
	}
	req := &descriptors.Request{Descriptors: make([]descriptors.Descriptor, 2)}
	for _, c := range cases {
		answer := answerOf(t, appendBare(nil, req, &c.verdict))
		if got := codes(answer); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func BenchmarkShouldRateLimit(b *testing.B) {
	s := New(Config{Engine: fixed(refusal())})
	wire := wireOf(b, typical())
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.door.Handle(s, b.Context(), dec, nil)
		if err != nil {
			b.Fatal(err)
		}
	}
}
