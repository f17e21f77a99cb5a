package sidecar

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// decisionOf is the header with the id of a decision, of headers in either form.
func decisionOf(rls []*corev3.HeaderValue, authz []*corev3.HeaderValueOption) string {
	for _, h := range authz {
		rls = append(rls, h.GetHeader())
	}
	for _, h := range rls {
		if h.GetKey() == "x-ratelimit-decision" {
			return h.GetValue()
		}
	}
	return ""
}

// refusedBy asks both doors of a sidecar as a user until they refuse, and returns the ids in their answers.
func refusedBy(t *testing.T, s *running, user string) (rls, authz string) {
	t.Helper()
	conn := dial(t, s.Addresses().GRPC)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		answer := must.Get(ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx,
			&ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{
				{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}}}))(t)
		rls = decisionOf(answer.GetResponseHeadersToAdd(), nil)
		if answer.GetOverallCode() == codeOK && rls != "" {
			t.Errorf("an admitted request has the id %q", rls)
		}
	}
	check := checkOf(user, "/x", "GET", "192.0.2.7")
	check.Attributes.Request.Http.Headers["x-request-id"] = "request-of-" + user
	denied := must.Get(authv3.NewAuthorizationClient(conn).Check(ctx, check))(t)
	return rls, decisionOf(nil, denied.GetDeniedResponse().GetHeaders())
}

const decisionRules = `
domain: shop
identity: {order: [mtls, ip]}
rules:
  - {name: each, scope: user, limit: 2/24h}
`

// TestARefusalIsExplainedAfterwards: its answer and its line in the log have an id, by which each sidecar finds it.
func TestARefusalIsExplainedAfterwards(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s", "LOG_DECISIONS=refused"}
	for _, secret := range []string{"", "a-secret-of-sidecars"} {
		set := append([]string{"KEY_SECRET=" + secret}, environ...)
		one, other := begin(t, decisionRules, set...), begin(t, decisionRules, set...)
		rls, authz := refusedBy(t, one, "ann"+secret)
		one.awaitLog(t, "id="+rls)
		for _, id := range []string{rls, authz, "request-of-ann" + secret} {
			for _, s := range []*running{one, other} {
				status, d := s.call(t, "GET", "/v1/decision?id="+id, nil)
				written, _ := d["written"].(string)
				if status != http.StatusOK || d["rule"] != "each" || !strings.HasSuffix(written, ":5") ||
					d["left"] != 0.0 ||
					d["per"] != "24h0m0s" || d["outcome"] != "refused" {
					t.Errorf("%s: %d %v", id, status, d)
				}
			}
		}
		if status, d := other.call(t, "GET", "/v1/decision?id="+authz, nil); d["user"] != "ann"+secret {
			t.Errorf("whose it was: %d %v", status, d)
		}
		status, d := other.call(t, "GET", "/v1/decision?id=0123456789abcdef", nil)
		if status != http.StatusNotFound {
			t.Errorf("an id that none has: %d %v", status, d)
		}
	}
}

// TestIDsCanBeOff, and then no answer has one.
func TestIDsCanBeOff(t *testing.T) {
	s := begin(t, decisionRules, "ADMIN_DECISIONS=0")
	if rls, authz := refusedBy(t, s, "ann"); rls+authz != "" {
		t.Errorf("the answers have the ids %q and %q", rls, authz)
	}
	if status, d := s.call(t, "GET", "/v1/decision?id=0123456789abcdef", nil); status != http.StatusNotFound {
		t.Errorf("%d %v", status, d)
	}
	s = begin(t, decisionRules, "ADMIN_EVENTS=off")
	if status, d := s.call(t, "GET", "/v1/decision?id=0123456789abcdef", nil); status != http.StatusNotFound ||
		d["detail"] != "ADMIN_EVENTS is off" {
		t.Errorf("with ADMIN_EVENTS=off: %d %v", status, d)
	}
}
