package sidecar

import (
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// askTwo asks about two users in one request.
func askTwo(t *testing.T, s *running, users ...string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	request := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for _, user := range users {
		request.Descriptors = append(request.Descriptors,
			&commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}})
	}
	answer := must.Get(ratelimitv3.NewRateLimitServiceClient(dial(t, s.Addresses().GRPC)).ShouldRateLimit(t.Context(),
		request))(t)
	return answer
}

// TestARefusedRequestIsChargedNowhere where the reference server's variable asks for it, unless the domain sets
// otherwise.
func TestARefusedRequestIsChargedNowhere(t *testing.T) {
	redis := servers.StartRedis(t)
	for name, c := range map[string]struct {
		environ, text string
		left          uint32
	}{
		"unset":                      {"", "", 0},
		"set":                        {"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "", 1},
		"set, the domain is charged": {"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "charge_denied: true\n", 0},
		"unset, the domain is not":   {"", "charge_denied: false\n", 1},
	} {
		s := begin(t, twoPerYear+c.text, c.environ, "REDIS_URL="+redis.Addr, "CACHE_KEY_PREFIX="+
			strings.ReplaceAll(name, " ", "_"), "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
		askTwo(t, s, "spent")
		askTwo(t, s, "spent")
		askTwo(t, s, "other")
		if got := askTwo(t, s, "spent", "other"); got.GetOverallCode() != codeOver {
			t.Errorf("%s: %v, want a refusal", name, got)
		}
		if got := askTwo(t, s, "other").GetStatuses()[0]; got.GetLimitRemaining() != 0 ||
			(got.GetCode() == codeOK) != (c.left == 1) {
			t.Errorf("%s: the other counter has %v, want %d left before it", name, got, c.left)
		}
		if log := s.log.String(); strings.Contains(log, "ignored") {
			t.Errorf("%s: the log names the variable as ignored:\n%s", name, log)
		}
	}
}

func TestRefusalsInTheReferenceServersStyle(t *testing.T) {
	s := begin(t, twoPerYear, "RESPONSE_STYLE=reference")
	askTwo(t, s, "alice")
	askTwo(t, s, "alice")
	got := askTwo(t, s, "alice")
	if got.GetOverallCode() != codeOver || len(got.GetRawBody()) > 0 || len(got.GetResponseHeadersToAdd()) > 0 {
		t.Errorf("refused with %v, want the codes alone", got)
	}
}

// TestABlockOverRLS has its own title and status, in the body and in the log.
func TestABlockOverRLS(t *testing.T) {
	s := begin(t, "domain: shop\nrules:\n- { name: mallory, scope: user, match: { users: [mallory] }, action: "+
		"block, reason: Contact us., until: 2099-01-01T00:00:00Z }\n",
		"LOG_DECISIONS=refused")
	got := askTwo(t, s, "mallory")
	if body := string(got.GetRawBody()); got.GetOverallCode() != codeOver ||
		!strings.Contains(body, `"title":"Forbidden","status":403,"detail":"Contact us."`) {
		t.Errorf("blocked with %v", got)
	}
	for _, h := range got.GetResponseHeadersToAdd() {
		if h.GetKey() == "retry-after" {
			t.Errorf("a client is told to come again in %s s", h.GetValue())
		}
	}
	servers.Await(t, "the decision in the log", func() error {
		return s.logs("rule=mallory scope=user outcome=blocked status=403")
	})
}
