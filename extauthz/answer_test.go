package extauthz

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// saying builds, with generated types, the answer that a verdict must come out as; of a denial without its body, which
// the goldens hold.
func saying(v *engine.Verdict) *authv3.CheckResponse {
	metadata := map[string]*structpb.Value{}
	if v.Degraded != "" {
		metadata["degraded"] = structpb.NewStringValue(v.Degraded)
	}
	out := &authv3.CheckResponse{Status: &status.Status{}}
	if !v.Refused {
		out.HttpResponse = &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{
			ResponseHeadersToAdd: limitHeaders(v, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD),
		}}
	} else {
		metadata["outcome"] = structpb.NewStringValue("refused")
		metadata["rule"] = structpb.NewStringValue(v.Refusing.Rule)
		out.Status.Code = 8
		headers := append([]*corev3.HeaderValueOption{option("retry-after", ceil(v.RetryAfter), 0)},
			limitHeaders(v, 0)...)
		denied := &authv3.DeniedHttpResponse{Status: &typev3.HttpStatus{Code: 429}, Headers: headers}
		if v.Response != nil {
			denied.Status.Code = typev3.StatusCode(v.Response.Status)
			for _, h := range v.Response.Headers {
				denied.Headers = append(denied.Headers, option(h.Name, h.Value, 0))
			}
		}
		denied.Headers = append(denied.Headers, option("content-type", "application/problem+json", 0))
		out.HttpResponse = &authv3.CheckResponse_DeniedResponse{DeniedResponse: denied}
	}
	if len(metadata) > 0 {
		out.DynamicMetadata = &structpb.Struct{Fields: metadata}
	}
	return out
}

func option(name, value string, action corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: action}
}

func ceil(d time.Duration) string {
	return strconv.FormatInt(max(int64(math.Ceil(d.Seconds())), 1), 10)
}

func limitHeaders(v *engine.Verdict, action corev3.HeaderValueOption_HeaderAppendAction) []*corev3.HeaderValueOption {
	if v.Reported.Effect == nil {
		return nil
	}
	return []*corev3.HeaderValueOption{
		option("x-ratelimit-limit", strconv.FormatInt(max(v.Reported.Effect.Limit.Count, v.Reported.Effect.Limit.Burst),
			10), action),
		option("x-ratelimit-remaining", strconv.FormatInt(v.Reported.Remaining, 10), action),
		option("x-ratelimit-reset", ceil(v.Reported.ResetAfter), action),
		option("x-ratelimit-cost", strconv.FormatInt(v.Cost, 10), action),
	}
}

func randomVerdict(r *rand.Rand) engine.Verdict {
	v := engine.Verdict{Refused: r.IntN(2) == 0, RetryAfter: time.Duration(r.IntN(100_000)) * time.Millisecond,
		Cost: r.Int64() >> r.IntN(64)}
	v.Degraded = pick(r, "", "", "timeout")
	v.Refusing = perMinute(pick(r, "", "daily", "per user"), r.Int64()>>r.IntN(64))
	if r.IntN(2) == 0 {
		v.Refusing.Limit.Burst = r.Int64() >> r.IntN(64)
	}
	if r.IntN(3) > 0 {
		v.Reported = engine.Status{Over: v.Refused, Effect: v.Refusing, Remaining: r.Int64() >> r.IntN(64),
			ResetAfter: time.Duration(r.IntN(100_000)) * time.Millisecond}
	}
	if v.Refused && r.IntN(2) == 0 {
		v.Response = &descriptors.Response{Status: 400 + r.IntN(200), Message: randomText(r)}
		for range r.IntN(3) {
			v.Response.Headers = append(v.Response.Headers, descriptors.Header{Name: pick(r, "x-a", "X-B"),
				Value: pick(r, "", "value", "a b")})
		}
	}
	for range r.IntN(3) {
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: perMinute("other", 1)})
		v.Decisions = append(v.Decisions, limit.Decision{Outcome: limit.Refused})
	}
	return v
}

func TestRandomVerdictsComeOutAsGeneratedCodeReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var verdict engine.Verdict
	s := New(Config{Engine: script(func(_ *descriptors.Request, v *engine.Verdict) { *v = verdict })})
	var wire []byte
	for range rounds {
		verdict = randomVerdict(r)
		var err error
		wire, err = s.door.Answer(t.Context(), nil, wire[:0])
		if err != nil {
			t.Fatalf("answer: %v", err)
		}
		got, want := answerOf(t, wire), saying(&verdict)
		if denied := got.GetDeniedResponse(); denied != nil {
			denied.Body = ""
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%+v:\n%s", verdict, cmp.Diff(want, got, protocmp.Transform()))
		}
	}
}

func TestNumbersNeverWrap(t *testing.T) {
	v := with(admitted(), func(v *engine.Verdict) {
		v.Cost = -1
		v.Reported.Remaining = -1
		v.Reported.ResetAfter = math.MaxInt64
	}, unixReset)
	headers := ask(t, Config{Engine: fixed(v), Now: func() time.Time {
		return time.Unix(0, 1)
	}}).GetOkResponse().GetResponseHeadersToAdd()
	for i, want := range map[int]string{1: "0", 2: "9223372037", 3: "0"} {
		if got := headers[i].GetHeader().GetValue(); got != want {
			t.Errorf("%s: %s, want %s", headers[i].GetHeader().GetKey(), got, want)
		}
	}
}

// TestSomeStatusesHaveNoBody: clients take one for the beginning of the next response.
func TestSomeStatusesHaveNoBody(t *testing.T) {
	for status, has := range map[int]bool{204: false, 205: false, 304: false, 429: true, 503: true} {
		v := &engine.Verdict{Refused: true, Response: &descriptors.Response{Status: status}}
		v.Conclude()
		answer := new(authv3.CheckResponse)
		must.Do(t, proto.Unmarshal(New(Config{}).appendAnswer(nil, &descriptors.Request{}, v), answer))
		if body := answer.GetDeniedResponse().GetBody(); (body != "") != has {
			t.Errorf("status %d has the body %q", status, body)
		}
	}
}
