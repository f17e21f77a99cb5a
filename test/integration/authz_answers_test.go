package integration

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-mesh/spillway/test/must"
)

// partnerRules are behind the example's /partners: one endpoint for each thing that a rule can do.
const partnerRules = `
domain: partners
identity:
  order: [ip]
  client_ip: { trusted_hops: 1 }
rules:
  - { name: first, scope: endpoint, match: { endpoints: ["/partners/plain", "/partners/grpc"] }, limit: 1/1h }
  - name: own-words
    scope: endpoint
    match: { endpoints: ["/partners/words"] }
    limit: 0/1h
    response: { status: 503, message: "Come back later.", headers: { x-help: "https://example.com/help" },
        retry_after: 90s }
  - { name: banned, match: { endpoints: ["/partners/banned"] }, action: block, reason: "Contact support.",
      until: 2099-01-01T00:00:00Z }
  - { name: free, match: { endpoints: ["/partners/free/**"] }, action: allow }
  - { name: seen, scope: endpoint, match: { endpoints: ["/partners/seen"] }, limit: 0/1h, action: log_only }
  - { name: by-entry, scope: ip, match: { entries: { api: partners-v1 }, endpoints: ["/partners/entry"] }, limit: 1/1h }
  - { name: other-entry, scope: ip, match: { entries: { api: partners-v2 }, endpoints: ["/partners/entry"] },
      limit: 100/1h, priority: 1 }
  - { name: priced, scope: endpoint, match: { endpoints: ["/partners/priced"] }, limit: 10/1h, cost: 3 }
`

func TestAuthzAnswersThroughEnvoy(t *testing.T) {
	onEachStore(t, authzSetup{rules: map[string]string{"partners.yaml": partnerRules}}, func(t *testing.T, w *world) {
		w.clean(t, "allowed with headers", w.authzAllowed)
		w.clean(t, "refused with headers and a problem document", w.authzRefused)
		w.clean(t, "refused in plain text", w.authzPlainText)
		w.clean(t, "a rule's own words", w.authzOwnWords)
		w.clean(t, "block", w.authzBlock)
		w.clean(t, "allow and log_only", w.authzAllow)
		w.clean(t, "costs", w.authzCosts)
		w.clean(t, "context extensions", w.authzExtensions)
		w.clean(t, "disabled route", w.authzDisabled)
		w.clean(t, "gRPC caller", w.authzGRPC)
	})
}

func (w *world) authzAllowed(t *testing.T) {
	// The application sends headers about limits, too. Spillway overwrites them.
	got := w.wants(t, 1, http.StatusOK, "/", "x-api-key", demoKey, "x-echo-x-ratelimit-limit", "999",
		"x-echo-x-ratelimit-reset", "never")
	got.has(t, "x-ratelimit-limit", "20")
	got.has(t, "x-ratelimit-remaining", "19")
	got.has(t, "x-ratelimit-cost", "1")
	between(t, got, "x-ratelimit-reset", 1, 3)
	if after := got.header.Get("retry-after"); after != "" {
		t.Errorf("retry-after: %s on an allowed request", after)
	}
}

func (w *world) authzRefused(t *testing.T) {
	w.wants(t, 5, http.StatusOK, "/", "x-api-key", ciKey).has(t, "x-ratelimit-remaining", "0")
	reached := w.app.Hits()
	got := w.wants(t, 1, http.StatusTooManyRequests, "/", "x-api-key", ciKey)
	if w.app.Hits() != reached {
		t.Error("a refused request reached the application")
	}
	got.has(t, "x-ratelimit-limit", "5")
	got.has(t, "x-ratelimit-remaining", "0")
	got.has(t, "x-ratelimit-cost", "1")
	between(t, got, "x-ratelimit-reset", 1, 60)
	between(t, got, "retry-after", 1, 12)
	got.has(t, "content-type", "application/problem+json")
	var problem struct {
		Status   int      `json:"status"`
		Title    string   `json:"title"`
		Violated []string `json:"violated-policies"`
	}
	err := json.Unmarshal([]byte(got.body), &problem)
	if err != nil || problem.Status != http.StatusTooManyRequests || problem.Title == "" || len(problem.Violated) != 1 {
		t.Errorf("the body is no problem document: %v in %q", err, got.body)
	}
}

func (w *world) authzPlainText(t *testing.T) {
	const path = "/partners/plain"
	w.wants(t, 1, http.StatusOK, path)
	got := w.wants(t, 1, http.StatusTooManyRequests, path, "accept", "text/plain")
	got.has(t, "content-type", "text/plain")
	if strings.HasPrefix(got.body, "{") || got.body == "" {
		t.Errorf("the body is no plain text: %q", got.body)
	}
	w.wants(t, 1, http.StatusTooManyRequests, path, "accept", "application/json, text/plain;q=0.5").has(t,
		"content-type", "application/problem+json")
	if line := w.logged(t, path+" 429"); !strings.Contains(line, `"outcome":"refused"`) ||
		!strings.Contains(line, `"rule":"first"`) {
		t.Errorf("the access log does not tell of the refusal: %s", line)
	}
}

func (w *world) authzOwnWords(t *testing.T) {
	got := w.wants(t, 1, http.StatusServiceUnavailable, "/partners/words")
	got.has(t, "x-help", "https://example.com/help")
	got.has(t, "retry-after", "90")
	got.mentions(t, "Come back later.")
}

func (w *world) authzBlock(t *testing.T) {
	got := w.wants(t, 1, http.StatusForbidden, "/partners/banned")
	got.mentions(t, "Contact support.")
	between(t, got, "retry-after", 1, 1<<40)
	got.unlimited(t)
	w.wants(t, 1, http.StatusForbidden, "/v0/items").mentions(t, "This version has ended. Use /v1.")
}

func (w *world) authzAllow(t *testing.T) {
	w.wants(t, 5, http.StatusOK, "/partners/free/of/charge").unlimited(t)
	w.wants(t, 5, http.StatusOK, "/partners/seen").unlimited(t)
}

func (w *world) authzCosts(t *testing.T) {
	got := w.wants(t, 3, http.StatusOK, "/partners/priced")
	got.has(t, "x-ratelimit-cost", "3")
	got.has(t, "x-ratelimit-remaining", "1")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/priced").has(t, "x-ratelimit-remaining", "1")
	// A price for an endpoint and a method, one that the mesh sets, and one that only the client names.
	w.send(t, http.MethodPost, "/search", "x-api-key", demoKey).has(t, "x-ratelimit-cost", "2")
	w.send(t, http.MethodGet, "/search", "x-api-key", demoKey).has(t, "x-ratelimit-cost", "1")
	w.send(t, http.MethodGet, "/reports", "x-api-key", demoKey, "x-request-cost", "1").has(t, "x-ratelimit-cost", "10")
	w.send(t, http.MethodGet, "/", "x-api-key", demoKey, "x-request-cost", "7").has(t, "x-ratelimit-cost", "1")
}

func (w *world) authzExtensions(t *testing.T) {
	// The route's own domain, and an entry that only one of two rules asks for.
	w.wants(t, 1, http.StatusOK, "/partners/entry").has(t, "x-ratelimit-limit", "1")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/entry")
	w.wants(t, 1, http.StatusOK, "/partners/not/limited").unlimited(t)
	w.wants(t, 1, http.StatusOK, "/entry").has(t, "x-ratelimit-limit", "600")
}

func (w *world) authzDisabled(t *testing.T) {
	asked := w.envoy.Stat(t, "http.ingress.ext_authz.ok")
	w.wants(t, 5, http.StatusOK, "/healthz").unlimited(t)
	if n := w.envoy.Stat(t, "http.ingress.ext_authz.ok"); n != asked {
		t.Errorf("Spillway was asked %d times on a route where ext_authz is disabled", n-asked)
	}
}

func (w *world) authzGRPC(t *testing.T) {
	const path = "/partners/grpc"
	if got := w.grpcTo(t, path); got.header.Get("grpc-status") != "0" {
		t.Fatalf("an allowed gRPC call was answered with grpc-status %q (headers %v)", got.header.Get("grpc-status"),
			got.header)
	}
	got := w.grpcTo(t, path)
	got.has(t, "grpc-status", "8")
	between(t, got, "retry-after", 3500, 3600)
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(got.header.Get("grpc-status-details-bin"), "="))
	if err != nil {
		t.Fatalf("grpc-status-details-bin: %v in %v", err, got.header)
	}
	var status rpcstatus.Status
	err = proto.Unmarshal(raw, &status)
	if err != nil || status.GetCode() != 8 {
		t.Fatalf("the details are of code %d: %v", status.GetCode(), err)
	}
	for _, detail := range status.GetDetails() {
		var retry errdetails.RetryInfo
		if detail.UnmarshalTo(&retry) == nil {
			if delay := retry.GetRetryDelay().AsDuration(); delay < 3500*time.Second || delay > time.Hour {
				t.Errorf("the details say to come back after %v, want about an hour", delay)
			}
			return
		}
	}
	t.Errorf("the details hold no RetryInfo: %v", &status)
}

// grpcTo calls a path the way gRPC clients do.
func (w *world) grpcTo(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r := must.Get(http.NewRequest(http.MethodPost, "http://"+w.envoy.Addr+path, http.NoBody))(t)
	r.Header.Set("content-type", "application/grpc")
	r.Header.Set("te", "trailers")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := do(&http.Client{Transport: transport, Timeout: time.Minute}, r)
	if err != nil {
		t.Fatalf("gRPC call through Envoy: %v", err)
	}
	return got
}
