package rlsvc

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
)

var generatedUnits = map[descriptors.Unit]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	descriptors.Second: ratelimitv3.RateLimitResponse_RateLimit_SECOND,
	descriptors.Minute: ratelimitv3.RateLimitResponse_RateLimit_MINUTE,
	descriptors.Hour:   ratelimitv3.RateLimitResponse_RateLimit_HOUR,
	descriptors.Day:    ratelimitv3.RateLimitResponse_RateLimit_DAY,
	descriptors.Week:   ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	descriptors.Month:  ratelimitv3.RateLimitResponse_RateLimit_MONTH,
	descriptors.Year:   ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}

// saying is the status that a verdict's status must come out as.
func saying(s engine.Status) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	out := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	if s.Over {
		out.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	if s.Effect == nil {
		if s.Unlimited {
			out.LimitRemaining = math.MaxUint32
		}
		return out
	}
	out.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		Name:            s.Effect.Name,
		RequestsPerUnit: uint32(min(s.Effect.Limit.Count, math.MaxUint32)),
		Unit:            generatedUnits[s.Effect.Unit],
	}
	if s.Effect.Multiplier > 1 {
		out.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(s.Effect.Multiplier)
	}
	out.LimitRemaining = uint32(min(s.Remaining, math.MaxUint32))
	reset := int64(math.Ceil(s.ResetAfter.Seconds()))
	out.DurationUntilReset = &durationpb.Duration{Seconds: max(reset, 1)}
	return out
}

func randomVerdict(r *rand.Rand, statuses int) engine.Verdict {
	v := engine.Verdict{Refused: r.IntN(2) == 0, RetryAfter: time.Duration(r.IntN(100_000)) * time.Millisecond}
	for range statuses {
		s := engine.Status{Over: r.IntN(2) == 0, Unlimited: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			names := []string{"", "daily", "per user", strings.Repeat("n", 150)}
			s.Effect = perMinute(names[r.IntN(len(names))], r.Int64N(1<<40)>>r.IntN(41))
			s.Effect.Unit = descriptors.Unit(1 + r.IntN(7))
			s.Effect.Multiplier = uint32(r.IntN(4))
			s.Remaining = r.Int64N(1<<40) >> r.IntN(41)
			s.ResetAfter = time.Duration(r.IntN(200_000)) * time.Millisecond
		}
		v.Statuses = append(v.Statuses, s)
	}
	return v
}

func TestRandomVerdictsComeOutAsGeneratedCodeReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var verdict engine.Verdict
	s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) { *v = verdict })})
	var wire []byte
	for range rounds {
		n := r.IntN(5)
		verdict = randomVerdict(r, n)
		var ask []byte
		for range n {
			ask = append(ask, request()...)
		}
		var err error
		wire, err = s.Answer(t.Context(), ask, wire[:0])
		if err != nil {
			t.Fatalf("answer: %v", err)
		}
		var got ratelimitv3.RateLimitResponse
		err = proto.Unmarshal(wire, &got)
		if err != nil {
			t.Fatalf("%+v: the answer cannot be read: %v", verdict, err)
		}
		if diff := wrongStatuses(&got, &verdict); diff != "" {
			t.Fatalf("%+v: %s", verdict, diff)
		}
	}
}

func wrongStatuses(got *ratelimitv3.RateLimitResponse, v *engine.Verdict) string {
	want := ratelimitv3.RateLimitResponse_OK
	if v.Refused {
		want = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	if got.GetOverallCode() != want {
		return "overall code " + got.GetOverallCode().String()
	}
	if len(got.ProtoReflect().GetUnknown()) > 0 || len(got.GetStatuses()) != len(v.Statuses) {
		return "unknown fields, or not one status per descriptor: " + got.String()
	}
	if (len(got.GetRawBody()) > 0) != v.Refused {
		return "a body goes with a refusal, and with nothing else"
	}
	for i, s := range v.Statuses {
		if want := saying(s); !proto.Equal(want, got.GetStatuses()[i]) {
			return cmp.Diff(want, got.GetStatuses()[i], protocmp.Transform())
		}
	}
	return ""
}

func TestNumbersNeverWrap(t *testing.T) {
	huge := perMinute("huge", math.MaxInt64)
	answer := ask(t, Config{Engine: fixed(engine.Verdict{Statuses: []engine.Status{
		{Effect: huge, Remaining: math.MaxInt64, ResetAfter: math.MaxInt64},
		{Effect: huge, Remaining: -5, ResetAfter: -5},
	}})}, 2)
	first, second := answer.GetStatuses()[0], answer.GetStatuses()[1]
	if got := first.GetCurrentLimit().GetRequestsPerUnit(); got != math.MaxUint32 {
		t.Errorf("requests per unit of a huge limit: %d", got)
	}
	if got := first.GetLimitRemaining(); got != math.MaxUint32 {
		t.Errorf("a huge remaining: %d", got)
	}
	if got := first.GetDurationUntilReset().GetSeconds(); got != 9223372037 {
		t.Errorf("292 years until reset: %d s", got)
	}
	if second.GetLimitRemaining() != 0 || second.GetDurationUntilReset().GetSeconds() != 1 {
		t.Errorf("negative numbers: %v", second)
	}
}

func TestStatusesOfLimitsThatDoNotLimit(t *testing.T) {
	block := perMinute("mallory", 5)
	block.Action = descriptors.Block
	answer := ask(t, Config{Engine: fixed(engine.Verdict{Statuses: []engine.Status{
		{}, {Unlimited: true}, {Over: true, Effect: block},
	}})}, 3)
	for i, status := range answer.GetStatuses() {
		if status.GetCurrentLimit() != nil || status.GetDurationUntilReset() != nil {
			t.Errorf("status %d shows a limit: %v", i, status)
		}
	}
	if got := answer.GetStatuses()[1].GetLimitRemaining(); got != math.MaxUint32 {
		t.Errorf("unlimited has %d left", got)
	}
}

func TestNamesLeaveWithoutControlBytesAndQuotes(t *testing.T) {
	e := perMinute("a\"b\r\nSet-Cookie: x\x00\\é\x7f"+strings.Repeat("y", 70_000), 1)
	answer := ask(t, Config{Engine: fixed(engine.Verdict{Statuses: []engine.Status{{Effect: e}}})}, 1)
	got := answer.GetStatuses()[0].GetCurrentLimit().GetName()
	if want := "a_b__Set-Cookie: x_____"; !strings.HasPrefix(got, want) {
		t.Errorf("name %q does not begin with %q", got, want)
	}
	if len(got) != 256 {
		t.Errorf("name of %d bytes, at most 256", len(got))
	}
}

func TestShadowedRefusalAdmits(t *testing.T) {
	answer := ask(t,
		Config{Engine: fixed(engine.Verdict{Shadowed: true, RetryAfter: time.Minute,
			Statuses: []engine.Status{{Over: true, Effect: perMinute("x", 1)}}})}, 1)
	if answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Errorf("overall code %v", answer.GetOverallCode())
	}
	if answer.GetStatuses()[0].GetCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("the status is hidden: %v", answer.GetStatuses()[0])
	}
	if len(answer.GetRawBody()) > 0 || len(answer.GetResponseHeadersToAdd()) > 0 {
		t.Errorf("an admitted client is told of a refusal: %v", answer)
	}
}

// refusal is a verdict with all that an answer can carry.
func refusal() engine.Verdict {
	e := perMinute("per-user", 100)
	return engine.Verdict{
		Refused: true, RetryAfter: 7500 * time.Millisecond, Refusing: e,
		Response: &descriptors.Response{Message: "Upgrade for more.",
			Headers: []descriptors.Header{{Name: "x-upgrade", Value: "https://example.com/plans"}}},
		Statuses: []engine.Status{{Over: true, Effect: e, ResetAfter: 30 * time.Second},
			{Effect: perMinute("all", 5000), Remaining: 4000}, {}},
	}
}

func TestAnswerAllocatesNothing(t *testing.T) {
	s := New(Config{LimitHeaders: true})
	req := &descriptors.Request{Descriptors: make([]descriptors.Descriptor, 3)}
	v := refusal()
	var out []byte
	allocs := testing.AllocsPerRun(100, func() { out = s.appendAnswer(out[:0], req, &v) })
	if allocs > 0 {
		t.Errorf("%v allocations for an answer", allocs)
	}
}

func BenchmarkAnswer(b *testing.B) {
	s := New(Config{LimitHeaders: true})
	req := &descriptors.Request{Descriptors: make([]descriptors.Descriptor, 3)}
	admitted := engine.Verdict{Statuses: []engine.Status{{Effect: perMinute("per-user", 100), Remaining: 99,
		ResetAfter: time.Minute}, {}, {}}}
	refused := refusal()
	for name, v := range map[string]*engine.Verdict{"admitted": &admitted, "refused": &refused} {
		b.Run(name, func(b *testing.B) {
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				out = s.appendAnswer(out[:0], req, v)
			}
		})
	}
}

// TestARequestForTooMuchHasAStatusForEachDescriptor: Envoy attributes statuses by their place. The first one is over
// the limit, as that of a block.
func TestARequestForTooMuchHasAStatusForEachDescriptor(t *testing.T) {
	for name, c := range map[string]struct {
		req  descriptors.Request
		seen int // statuses of the verdict
	}{
		"a path":           {descriptors.Request{Descriptors: make([]descriptors.Descriptor, 3)}, 3},
		"descriptors":      {descriptors.Request{Excess: "descriptors", Unread: 3}, 0},
		"a broken verdict": {descriptors.Request{Descriptors: make([]descriptors.Descriptor, 3)}, 0},
	} {
		v := engine.Verdict{Refused: true, Excess: name, Statuses: make([]engine.Status, c.seen)}
		if c.seen > 0 {
			v.Statuses[0].Over = true
		}
		s := New(Config{Engine: fixed(v)})
		for what, b := range map[string][]byte{"answer": s.appendAnswer(nil, &c.req, &v), "bare": appendBare(nil,
			&c.req, &v)} {
			var got ratelimitv3.RateLimitResponse
			must.Do(t, proto.Unmarshal(b, &got))
			var codes []ratelimitv3.RateLimitResponse_Code
			for _, status := range got.GetStatuses() {
				codes = append(codes, status.GetCode())
			}
			want := []ratelimitv3.RateLimitResponse_Code{ratelimitv3.RateLimitResponse_OVER_LIMIT,
				ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OK}
			if diff := cmp.Diff(want, codes); diff != "" ||
				got.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
				t.Errorf("%s, %s: %v (-want +got):\n%s", name, what, got.GetOverallCode(), diff)
			}
		}
	}
}
