package sidecar

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
)

// explainedRules are soon spent, and give nothing back while a test runs.
const explainedRules = `
domain: shop
identity:
  order: [mtls, ip]
rules:
  - {name: each, scope: user, limit: 6/24h}
  - {name: gold, scope: user, match: {tiers: [gold]}, limit: 12/24h}
  - {name: search, scope: [user, endpoint], match: {endpoints: ["/search"], methods: [POST]}, limit: 3/24h}
  - {name: guests, scope: ip, match: {authenticated: false}, limit: 5/24h}
  - {name: free, match: {endpoints: ["/healthz"]}, action: allow}
  - {name: abusers, match: {users: [eve]}, action: block}
users:
  carol: {tier: gold}
descriptors:
  - key: plan
    rate_limit: {unit: day, requests_per_unit: 9}
`

func pickOne(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

// TestExplainSaysWhatBothDoorsSay explains random requests over the API and then sends them to the doors.
func TestExplainSaysWhatBothDoorsSay(t *testing.T) {
	s := begin(t, explainedRules)
	s.operate(t, "/v1/block", fields{"user": "mallory"})
	s.operate(t, "/v1/block", fields{"ip": "192.0.2.128/25"})
	s.operate(t, "/v1/tier", fields{"user": "dave", "tier": "gold", "limits": []fields{{"count": 4, "per": "24h"}}})
	conn := dial(t, s.Addresses().GRPC)
	limits, checks := ratelimitv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := rand.New(rand.NewPCG(3, 4))
	seen := map[string]int{}
	for range 300 {
		user, path, method := pickOne(r, "", "alice", "bob", "carol", "dave", "eve", "mallory"),
			pickOne(r, "/", "/search", "/healthz"), pickOne(r, "GET", "POST")
		peer, plan := pickOne(r, "192.0.2.7", "192.0.2.200", "198.51.100.4"), pickOne(r, "", "a", "b")
		if r.IntN(2) == 0 {
			explained := s.operate(t, "/v1/explain",
				fields{"http": fields{"domain": "shop", "method": method, "path": path, "peer": peer,
					"headers": fields{"x": "y"}, "context": fields{"c": "d"}, "principal": or(user, "stranger")}})
			got := must.Get(checks.Check(ctx, checkOf(or(user, "stranger"), path, method, peer)))(t)
			status := float64(http.StatusOK)
			if d := got.GetDeniedResponse(); d != nil {
				status = float64(d.GetStatus().GetCode())
			}
			verdict := explained["verdict"].(fields)
			if verdict["status"] != status {
				t.Fatalf("ext_authz answers %v, and explain says %v", got, explained)
			}
			seen["ext_authz "+verdict["outcome"].(string)]++
			continue
		}
		wire, text := &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: []*commonv3.RateLimitDescriptor{{}}},
			[]fields{}
		for key, value := range map[string]string{"user": user, "path": path, "method": method,
			"remote_address": peer} {
			if value != "" {
				wire.Descriptors[0].Entries = append(wire.Descriptors[0].Entries,
					&commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
				text = append(text, fields{"key": key, "value": value})
			}
		}
		all := []fields{{"entries": text}}
		if plan != "" {
			wire.Descriptors = append(wire.Descriptors,
				&commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
					{Key: "plan", Value: plan}}})
			all = append(all, fields{"entries": []fields{{"key": "plan", "value": plan}}})
		}
		explained := s.operate(t, "/v1/explain", fields{"rls": fields{"domain": "shop", "descriptors": all}})
		got := must.Get(limits.ShouldRateLimit(ctx, wire))(t)
		if explained["answers"].(fields)["rls"].(fields)["overallCode"] != got.GetOverallCode().String() {
			t.Fatalf("the rate limit service answers %v, and explain says %v", got, explained)
		}
		seen["rls "+explained["verdict"].(fields)["outcome"].(string)]++
	}
	for _, want := range []string{"rls allowed", "rls refused", "rls blocked", "rls exempt", "ext_authz allowed",
		"ext_authz refused", "ext_authz blocked", "ext_authz exempt"} {
		if seen[want] < 3 {
			t.Errorf("%s was seen %d times only: %v", want, seen[want], seen)
		}
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// checkOf is a call of ext_authz.
func checkOf(principal, path, method, peer string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{
			Principal: principal,
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: peer}}},
		},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: method, Path: path, Headers: map[string]string{"x": "y"},
		}},
		ContextExtensions: map[string]string{"domain": "shop", "c": "d"},
	}}
}

// TestExplainKnowsClientsByTheirNames: it needs neither a credential nor what an API key of the rule file knows beside.
func TestExplainKnowsClientsByTheirNames(t *testing.T) {
	s := begin(t, `
domain: shop
identity:
  order: [api_key, ip]
  api_keys:
    header: x-api-key
    keys:
      - {id: k1, sha256: 0000000000000000000000000000000000000000000000000000000000000000, user: ann, tenant: acme}
rules:
  - {name: each, scope: user, limit: 6/24h}
  - {name: gold, scope: tenant, match: {tiers: [gold]}, limit: 5/24h}
users:
  carol: {tier: gold}
`)
	for _, c := range []struct{ client, want fields }{
		{fields{"user": "carol"}, fields{"user": "carol", "evidence": "named", "authenticated": true}},
		{fields{"api_key": "k1"}, fields{"user": "ann", "tenant": "acme", "api_key": "k1", "evidence": "named",
			"authenticated": true}},
		{fields{"api_key": "of the control", "user": "bob", "tier": "gold"}, fields{"user": "bob", "tier": "gold",
			"api_key": "of the control", "evidence": "named", "authenticated": true,
			"fault": `the API key "of the control" is not known to the rule file`}},
	} {
		got := s.operate(t, "/v1/explain", fields{"http": fields{"domain": "shop", "method": "GET", "path": "/",
			"client": c.client}})
		if diff := cmp.Diff(c.want, got["client"]); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.client, diff)
		}
		if rule := got["verdict"].(fields)["rule"]; rule != "each" {
			t.Errorf("%v is limited by %v, want each", c.client, rule)
		}
	}
}

// TestExplainSaysWhyAKeyShowsNobody, and the request is decided as one without it.
func TestExplainSaysWhyAKeyShowsNobody(t *testing.T) {
	digest := func(key string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(key))) }
	s := begin(t, `
domain: shop
identity:
  order: [api_key, ip]
  api_keys:
    header: x-api-key
    keys:
      - {id: good, sha256: `+digest("good-key")+`}
      - {id: old, sha256: `+digest("old-key")+`, expires: 2020-01-01T00:00:00Z}
      - {id: bad, sha256: `+digest("bad-key")+`, revoked: true}
rules:
  - {name: each, scope: user, limit: 6/24h}
`)
	for key, want := range map[string]any{
		"good-key": nil, "": nil, "old-key": "the API key in the header x-api-key has expired",
		"bad-key": "the API key in the header x-api-key is revoked", "gud-key": "the API key in the header " +
			"x-api-key is not known",
	} {
		got := s.operate(t, "/v1/explain", fields{"http": fields{"domain": "shop", "method": "GET", "path": "/",
			"headers": fields{"x-api-key": key}}})["client"].(fields)
		if got["fault"] != want || (got["user"] != nil) != (key == "good-key") {
			t.Errorf("with %q the client is %v, want the fault %v", key, got, want)
		}
	}
}

// TestARuleHasOnePlace: an explanation, the list of rules and a counter name the line where the rule begins.
func TestARuleHasOnePlace(t *testing.T) {
	s := begin(t, `
domain: shop
rules:
  - name: each
    scope: user

    limit: 6/24h
`)
	request := fields{"domain": "shop", "method": "GET", "path": "/", "client": fields{"user": "ann"}}
	first := func(answer fields, list string) fields { return answer[list].([]any)[0].(fields) }
	explained := first(s.operate(t, "/v1/explain", fields{"http": request}), "considered")["at"]
	_, listed := s.call(t, "GET", "/v1/rules", nil)
	_, used := s.call(t, "GET", "/v1/usage?user=ann&domain=shop", nil)
	domain, counter := first(listed, "domains"), first(used, "counters")
	want := explained.(string)
	if !strings.HasSuffix(want, ":4") || first(domain, "limits")["at"] != want || counter["at"] != want {
		t.Errorf("the rule is at %v, %v and %v, want :4 everywhere", want, first(domain, "limits")["at"], counter["at"])
	}
}
