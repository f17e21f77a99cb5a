package integration

import (
	"net/http"
	"testing"
	"time"
)

// identityRules are behind the example's /partners: tokens, then API keys in a header, then addresses.
const identityRules = `
domain: partners
identity:
  order: [jwt, api_key, ip]
  jwt:
    - issuer: https://issuer.example
      jwks: file:keys.json
      audiences: [shop]
      algorithms: [RS256, ES256, EdDSA]
      claims: { user: sub, tenant: org_id, tier: plan }
  api_keys:
    header: x-api-key
    keys:
      - { id: demo, sha256: "4c632e7135929907209e422fd8a878aca2a19f7a3ed1089e7c3e1c53c44bfa69", user: alice }
      - { id: ci, sha256: "d889bc32fcb5d1fc36f7ee50379539de7a9b3a7ad49d04898323d4c32152fba2", user: ci-bot,
          limits: [2/1h] }
  client_ip: { trusted_hops: 1 }
rules:
  - { name: per-user, scope: user, limit: 4/1h }
  - { name: per-address, scope: ip, limit: 1000/1h }
  - { name: per-tier, scope: [tenant, endpoint], match: { tiers: [pro], endpoints: ["/partners/pro"] }, limit: 1/1h }
`

// queryRules are in place of those of domain api: API keys in the query, and clients behind one more proxy.
const queryRules = `
domain: api
identity:
  order: [api_key, ip]
  api_keys:
    query: api_key
    keys:
      - { id: demo, sha256: "4c632e7135929907209e422fd8a878aca2a19f7a3ed1089e7c3e1c53c44bfa69", user: alice }
  client_ip: { trusted_hops: 2 }
rules:
  - { name: per-user, scope: user, limit: 2/1h }
  - { name: per-address, scope: ip, limit: 3/1h }
`

func TestAuthzIdentities(t *testing.T) {
	rules := map[string]string{"partners.yaml": identityRules, "authz.yaml": queryRules, "keys.json": keySet()}
	for _, raw := range []string{"true", "false"} {
		t.Run("encode_raw_headers: "+raw, func(t *testing.T) {
			onEachStore(t,
				authzSetup{rules: rules,
					swaps: [][2]string{{"encode_raw_headers: true", "encode_raw_headers: " + raw}}}, identities)
		})
	}
}

func identities(t *testing.T, w *world) {
	w.clean(t, "tokens", w.tokens)
	w.clean(t, "tokens that yield nothing", w.badTokens)
	w.clean(t, "API keys in a header", w.headerKeys)
	w.clean(t, "API keys in the query", w.queryKeys)
	w.clean(t, "addresses", w.forwardedAddresses)
	w.clean(t, "credentials sent twice", w.twice)
	w.clean(t, "bytes that are not UTF-8", w.authzNotUTF8)
}

// One user, however the token was signed.
func (w *world) tokens(t *testing.T) {
	claims := claimsOf("alice")
	for i, token := range []string{
		sign("RS256", "rsa", rsaKey(), claims), sign("ES256", "ec", ecKey(), claims),
		sign("EdDSA", "ed", edKey(), claims),
	} {
		got := w.wants(t, 1, http.StatusOK, "/partners", "authorization", "Bearer "+token)
		got.has(t, "x-ratelimit-limit", "4")
		got.has(t, "x-ratelimit-remaining", []string{"3", "2", "1"}[i])
	}
	// An API key of the same user is the same user.
	w.wants(t, 1, http.StatusOK, "/partners", "x-api-key", demoKey).has(t, "x-ratelimit-remaining", "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners", "authorization", "bearer "+tokenOf("alice"))
	w.wants(t, 1, http.StatusOK, "/partners", "authorization", "Bearer "+tokenOf("bob")).has(t, "x-ratelimit-remaining",
		"3")
	// Tenant and tier are the token's: one counter for both users of acme.
	w.wants(t, 1, http.StatusOK, "/partners/pro", "authorization", "Bearer "+tokenOf("carol"))
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/pro", "authorization", "Bearer "+tokenOf("dave"))
}

// A client with a bad token counts by its address.
func (w *world) badTokens(t *testing.T) {
	for _, token := range []string{
		sign("ES256", "ec", ecKey(), claimsOf("eve", object{"exp": time.Now().Add(-time.Hour).Unix()})),
		sign("ES256", "ec", ecKey(), claimsOf("eve", object{"aud": "other"})),
		sign("ES256", "ec", wrongKey(), claimsOf("eve")),
		"no.token.at.all",
	} {
		w.wants(t, 1, http.StatusOK, "/partners", "authorization", "Bearer "+token).has(t, "x-ratelimit-limit", "1000")
	}
}

func (w *world) headerKeys(t *testing.T) {
	w.wants(t, 2, http.StatusOK, "/partners", "x-api-key", ciKey).has(t, "x-ratelimit-limit", "2")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners", "x-api-key", ciKey)
	w.wants(t, 1, http.StatusOK, "/partners", "x-api-key", "unknown").has(t, "x-ratelimit-limit", "1000")
}

func (w *world) queryKeys(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/?api_key="+demoKey, "x-forwarded-for", "192.0.2.1").has(t, "x-ratelimit-limit", "2")
	w.wants(t, 1, http.StatusOK, "/?a=b&api_key=spillway%2ddemo-key", "x-forwarded-for", "192.0.2.2")
	w.wants(t, 1, http.StatusTooManyRequests, "/other?api_key="+demoKey, "x-forwarded-for", "192.0.2.3")
	w.wants(t, 1, http.StatusBadRequest, "/?api_key="+demoKey+"&api_key="+demoKey)
}

// Envoy appends its own peer, so the second from the right is what the proxy before it wrote.
func (w *world) forwardedAddresses(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "198.51.100.7").has(t, "x-ratelimit-remaining", "2")
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "203.0.113.1, 198.51.100.7").has(t, "x-ratelimit-remaining",
		"1")
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "::1,nonsense, ::ffff:198.51.100.7").has(t,
		"x-ratelimit-remaining", "0")
	w.wants(t, 1, http.StatusTooManyRequests, "/", "x-forwarded-for", "203.0.113.2,198.51.100.7:4711")
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "198.51.100.8").has(t, "x-ratelimit-remaining", "2")
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "2001:db8::1").has(t, "x-ratelimit-remaining", "2")
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "2001:db8::ffff:2").has(t, "x-ratelimit-remaining", "1")
	// No address: the peer, which is this test.
	w.wants(t, 1, http.StatusOK, "/", "x-forwarded-for", "nonsense").has(t, "x-ratelimit-remaining", "2")
	w.wants(t, 1, http.StatusOK, "/").has(t, "x-ratelimit-remaining", "1")
}

func (w *world) twice(t *testing.T) {
	for _, sent := range [][]string{
		{"x-api-key", demoKey, "x-api-key", ciKey},
		{"x-api-key", demoKey + "," + ciKey},
		{"authorization", "Bearer " + tokenOf("alice"), "authorization", "Bearer " + tokenOf("bob")},
		{"authorization", "Basic YTpi", "authorization", "bearer x"},
	} {
		got := w.send(t, http.MethodGet, "/partners", sent...)
		if got.status != http.StatusBadRequest {
			t.Errorf("%.60q was answered with %d, want 400", sent, got.status)
		}
		got.has(t, "content-type", "application/problem+json")
	}
}

// Bytes that are not UTF-8 do not avoid a limit: neither in a credential nor elsewhere.
func (w *world) authzNotUTF8(t *testing.T) {
	w.wants(t, 1, http.StatusOK, "/partners", "x-api-key", "\xff\xfe").has(t, "x-ratelimit-limit", "1000")
	w.wants(t, 1, http.StatusOK, "/partners", "authorization", "Bearer \xff\xfe").has(t, "x-ratelimit-limit", "1000")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners", "x-api-key", ciKey, "x-other", "\xff\xfe\x80")
	w.wants(t, 1, http.StatusTooManyRequests, "/partners/%ff%fe", "x-api-key", ciKey, "user-agent", "\xc0\xaf")
}
