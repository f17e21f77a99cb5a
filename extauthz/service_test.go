package extauthz

import (
	"fmt"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
)

// codes returns the code of the answer and the status of a denial.
func codes(answer *authv3.CheckResponse) string {
	return fmt.Sprintf("%d %d", answer.GetStatus().GetCode(), answer.GetDeniedResponse().GetStatus().GetCode())
}

func TestTheDomainIsTheRoutesElseTheDefault(t *testing.T) {
	var got string
	s := New(Config{DefaultDomain: "everything", Engine: script(func(req *descriptors.Request, _ *engine.Verdict) {
		got = req.Domain
	})})
	for _, c := range []struct{ extension, want string }{{"shop", "shop"}, {"", "everything"}} {
		_, err := s.door.Answer(t.Context(), attributes(message(10, pair("domain", c.extension))), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got != c.want {
			t.Errorf("context extension %q: domain %q, want %q", c.extension, got, c.want)
		}
	}
}

func TestAnEmptyVerdictAdmitsWithAStatus(t *testing.T) {
	s := New(Config{Engine: script(func(*descriptors.Request, *engine.Verdict) {})})
	out, err := s.door.Answer(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(out) != "\x0a\x00\x1a\x00" {
		t.Errorf("answered %x: want a status and an OkHttpResponse, both present and empty", out)
	}
}

func TestWhatCannotBeRenderedKeepsItsCodes(t *testing.T) {
	cases := []struct {
		name    string
		verdict engine.Verdict
		want    string
	}{
		{"admitted", admitted(), "0 0"},
		{"refused", refused(), "8 429"},
		{"blocked", blocked(), "7 403"},
		{"malformed", engine.Verdict{Malformed: &identity.Refusal{}}, "3 400"},
		{"no verdict", engine.Verdict{}, "0 0"},
	}
	for _, c := range cases {
		c.verdict.Conclude()
		if got := codes(answerOf(t, appendBare(nil, nil, &c.verdict))); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestACallAllocatesLittle counts from the verdict to the wire answer, and for a whole call.
func TestACallAllocatesLittle(t *testing.T) {
	wire := wireOf(t, typical())
	dec := func(v any) error { return v.(*Message).ParseWire(wire) }
	for name, verdict := range map[string]engine.Verdict{"admitted": admitted(),
		"refused": with(refused(), style(descriptors.HeadersBoth)), "blocked": blocked()} {
		s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) { *v = verdict })})
		var m Message
		if m.ParseWire(wire) != nil {
			t.Fatal("a typical request cannot be read")
		}
		var out []byte
		answer := testing.AllocsPerRun(100, func() { out = s.appendAnswer(out[:0], &m.Request, &verdict) })
		if answer > 0 {
			t.Errorf("%s: %v allocations from the verdict to the answer", name, answer)
		}
		whole := testing.AllocsPerRun(100, func() { _, _ = s.door.Handle(s, t.Context(), dec, nil) })
		if whole > 10 { // mostly 3; the race detector makes the pool forget
			t.Errorf("%s: %v allocations for a call", name, whole)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, verdict := range map[string]engine.Verdict{"admitted": admitted(), "refused": refused()} {
		b.Run(name, func(b *testing.B) {
			s := New(Config{Engine: fixed(verdict)})
			wire := wireOf(b, typical())
			dec := func(v any) error { return v.(*Message).ParseWire(wire) }
			b.ReportAllocs()
			for b.Loop() {
				_, err := s.door.Handle(s, b.Context(), dec, nil)
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
