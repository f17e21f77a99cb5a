package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// edgeRules are in place of those of domain api: one request an hour, per endpoint and per client.
const edgeRules = `
domain: api
headers: both
identity:
  order: [jwt, api_key, ip]
  jwt:
    - { issuer: https://issuer.example, jwks: file:keys.json, audiences: [shop], algorithms: [RS256, ES256, EdDSA] }
  api_keys:
    header: x-api-key
    keys:
      - { id: demo, sha256: "4c632e7135929907209e422fd8a878aca2a19f7a3ed1089e7c3e1c53c44bfa69", user: alice }
  client_ip: { trusted_hops: 1 }
cost_header: x-request-cost
rules:
  - { name: login, scope: endpoint, match: { endpoints: ["/login"] }, limit: 1/1h }
  - { name: per-user, scope: user, limit: 1/1h }
  - { name: per-address, scope: [ip, endpoint], match: { endpoints: ["/mine"] }, limit: 1/1h }
`

// What arrives at Spillway is what Envoy makes of a request. 307 is Envoy's answer to an escaped slash, which sends the
// client to the path that it means.
func TestBypassThroughEnvoy(t *testing.T) {
	w := startAuthz(t, authzSetup{memory: true, rules: map[string]string{"authz.yaml": edgeRules,
		"keys.json": keySet()}})
	w.wants(t, 1, http.StatusOK, "/login")
	w.wants(t, 1, http.StatusOK, "/mine")
	w.wants(t, 1, http.StatusOK, "/", "x-api-key", demoKey)
	own := "authorization: Bearer " + tokenOf("alice")
	for _, row := range []struct {
		target, header string
		want           int
	}{
		{"//login", "", 429},
		{"///login//", "", 429},
		{"/./login", "", 429},
		{"/x/../login", "", 429},
		{"/%2e/login", "", 429},
		{"/x/%2e%2e/login", "", 429},
		{"/login/", "", 429},
		{"/login;jsessionid=1", "", 429},
		{"/x/..;/login", "", 429},
		{"/%6cogin", "", 429},
		{"/login?x=1", "", 429},
		{"/\\login", "", 429},
		{"http://evil.example/login", "", 429},
		{"/%2flogin", "", 307},
		{"/x/..%2flogin", "", 307},
		{"/%5clogin", "", 307},
		{"/login%00", "", 400},
		{"/x/..%3b/login", "", 400},
		{"/login/..%3b/x", "", 400},
		{"/login%", "", 400},
		{"/login%zz", "", 400},
		{"/login#frag", "", 400},
		{"/mine", "x-forwarded-for: 192.0.2.1", 429},
		{"/mine", "x-forwarded-for: 192.0.2.1, 127.0.0.1", 429},
		{"/mine", "x-real-ip: 192.0.2.1\r\nforwarded: for=192.0.2.1", 429},
		{"/mine", "x-request-cost: 0", 429},
		{"/mine", "x-note: \xff\xfe\x80", 429},
		{"/mine", "authorization: Bearer \xff\xfe", 429},
		{"/", "X-API-KEY:   " + demoKey + " ", 429},
		{"/", own, 429},
		{"/", strings.Replace(own, "Bearer", "bEARER", 1), 429},
		{"/", "x-api-key: " + demoKey + "\r\nx-api-key: other", 400},
		{"/", "x-api-key: other, " + demoKey, 400},
		{"/", own + "\r\nauthorization: Basic x", 400},
		{"/", own + strings.Repeat("x", 9<<10), 400},
	} {
		w.clean(t, fmt.Sprintf("%s %.40s", row.target, row.header), func(t *testing.T) {
			got, body := w.raw(t, row.target, row.header)
			if got.StatusCode != row.want {
				t.Errorf("answered with %d, want %d (headers %v, body %q)", got.StatusCode, row.want, got.Header, body)
			}
		})
	}
}

// raw sends bytes that Go's client would not.
func (w *world) raw(t *testing.T, target, header string) (*http.Response, string) {
	t.Helper()
	conn := must.Get(net.DialTimeout("tcp", w.envoy.Addr, time.Minute))(t)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if header != "" {
		header += "\r\n"
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nhost: x\r\n%sconnection: close\r\n\r\n", target, header)
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return got, string(body)
}
