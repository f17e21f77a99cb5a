package extauthz

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/must"
)

// denied returns the denial's headers by name. One that comes twice is a failure: Envoy would send both.
func denied(t *testing.T, answer *authv3.CheckResponse) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, h := range answer.GetDeniedResponse().GetHeaders() {
		name := strings.ToLower(h.GetHeader().GetKey())
		if _, twice := out[name]; twice {
			t.Errorf("%s comes twice", name)
		}
		out[name] = h.GetHeader().GetValue()
	}
	return out
}

func TestGRPCCallersGetResourceExhausted(t *testing.T) {
	v := with(refused(), responds(descriptors.Response{Message: "Slow down, é.\nPlease."}))
	for _, contentType := range []string{"application/grpc", "application/grpc+proto", "Application/GRPC",
		"application/grpc-web"} {
		answer := ask(t, Config{Engine: fixed(v)}, "content-type: "+contentType)
		headers := denied(t, answer)
		if answer.GetDeniedResponse().GetStatus().GetCode() != 429 || headers["grpc-status"] != "8" ||
			headers["retry-after"] != "3" {
			t.Fatalf("%s: answered %s", contentType, printed(answer))
		}
		if _, given := headers["content-type"]; given ||
			answer.GetDeniedResponse().GetBody() != "Slow down, é.\nPlease." {
			t.Errorf("%s: Envoy makes the body the grpc-message: %s", contentType, printed(answer))
		}
		checkDetails(t, headers["grpc-status-details-bin"])
	}
}

// checkDetails reads the details as a gRPC library does.
func checkDetails(t *testing.T, header string) {
	t.Helper()
	raw, err := base64.RawStdEncoding.DecodeString(header)
	if err != nil {
		t.Fatalf("details %q: %v", header, err)
	}
	var status statuspb.Status
	err = proto.Unmarshal(raw, &status)
	if err != nil || len(status.GetDetails()) != 2 {
		t.Fatalf("details %v: %v", &status, err)
	}
	if status.GetCode() != 8 || status.GetMessage() != "Slow down, é.\nPlease." {
		t.Errorf("status %v", &status)
	}
	var retry errdetails.RetryInfo
	err = status.GetDetails()[0].UnmarshalTo(&retry)
	if err != nil || retry.GetRetryDelay().AsDuration() != 3*time.Second {
		t.Errorf("retry info %v: %v", &retry, err)
	}
	var info errdetails.ErrorInfo
	err = status.GetDetails()[1].UnmarshalTo(&info)
	if err != nil || info.GetReason() != "RATE_LIMIT_EXCEEDED" || info.GetDomain() != "spillway" ||
		info.GetMetadata()["policy"] != "per-user" {
		t.Errorf("error info %v: %v", &info, err)
	}
}

func TestLongMessagesAreCutBetweenLetters(t *testing.T) {
	got := string(appendShort(nil, "x"+strings.Repeat("é", 200)))
	if want := "x" + strings.Repeat("é", 127); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestOthersSeeNothingOfGRPC(t *testing.T) {
	for _, contentType := range []string{"", "application/json", "application/grp", "text/application/grpc"} {
		for name := range denied(t, ask(t, Config{Engine: fixed(refused())}, "content-type: "+contentType)) {
			if strings.HasPrefix(name, "grpc") {
				t.Errorf("a caller with the content type %q gets %s", contentType, name)
			}
		}
	}
}

func TestRulesMayNameGRPCHeadersThemselves(t *testing.T) {
	v := with(refused(),
		responds(descriptors.Response{Headers: []descriptors.Header{{Name: "Grpc-Status", Value: "14"},
			{Name: "grpc-status-details-bin", Value: "AA"}}}))
	headers := denied(t, ask(t, Config{Engine: fixed(v)}, "content-type: application/grpc"))
	if headers["grpc-status"] != "14" || headers["grpc-status-details-bin"] != "AA" {
		t.Errorf("headers %v", headers)
	}
}

func TestRetryAfterIsWholeSecondsAndAtLeastOne(t *testing.T) {
	for wait, want := range map[time.Duration]string{0: "1", -time.Second: "1", time.Millisecond: "1", time.Second: "1",
		time.Second + 1: "2", time.Hour: "3600"} {
		v := with(refused(), func(v *engine.Verdict) { v.RetryAfter = wait })
		if got := denied(t, ask(t, Config{Engine: fixed(v)}))["retry-after"]; got != want {
			t.Errorf("a wait of %v: retry-after %q, want %q", wait, got, want)
		}
	}
}

func TestAStatusThatNoResponseCanHaveIsReplaced(t *testing.T) {
	for status, want := range map[int]int{0: 429, 199: 429, 600: 429, -1: 429, 200: 200, 503: 503} {
		v := with(refused(), responds(descriptors.Response{Status: status}))
		if got := ask(t, Config{Engine: fixed(v)}).GetDeniedResponse().GetStatus().GetCode(); int(got) != want {
			t.Errorf("status %d: answered %d, want %d", status, got, want)
		}
	}
	v := engine.Verdict{Malformed: &identity.Refusal{Status: 7}}
	if got := ask(t, Config{Engine: fixed(v)}).GetDeniedResponse().GetStatus().GetCode(); got != 400 {
		t.Errorf("a malformed request: answered %d, want 400", got)
	}
}

func TestAllRefusingLimitsAreNamedAndNoShadow(t *testing.T) {
	v := refused()
	shadow := perMinute("trial", 1)
	shadow.Mode = limit.Shadow
	for _, e := range []*descriptors.Effect{perMinute("dai\"ly\n", 1), shadow} {
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: e})
		v.Decisions = append(v.Decisions, limit.Decision{Outcome: limit.Refused})
	}
	v = with(v, style(descriptors.HeadersIETF))
	answer := ask(t, Config{Engine: fixed(v)})
	var body struct {
		Violated []string `json:"violated-policies"`
	}
	must.Do(t, json.Unmarshal([]byte(answer.GetDeniedResponse().GetBody()), &body))
	if got := strings.Join(body.Violated, " "); got != "per-user dai_ly_" {
		t.Errorf("violated policies %q", got)
	}
	if got, want := denied(t, answer)["ratelimit-policy"],
		`"per-user";q=100;w=60, "everyone";q=5000;w=60, "dai_ly_";q=1;w=60`; got != want {
		t.Errorf("policies %s, want %s", got, want)
	}
}

func TestAPolicyListEndsBeforeItIsTooLong(t *testing.T) {
	v := with(admitted(), style(descriptors.HeadersIETF))
	for range 100 {
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: perMinute(strings.Repeat("n", 60), 1)})
	}
	got := ask(t, Config{Engine: fixed(v)}).GetOkResponse().GetResponseHeadersToAdd()[0].GetHeader().GetValue()
	if len(got) > 256 || !strings.HasSuffix(got, ";w=60") {
		t.Errorf("%d bytes of policies: %s", len(got), got)
	}
}
