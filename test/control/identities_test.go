package control_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// check sends a request with an API key to ext_authz of a sidecar, and returns the code of its answer.
func (w *world) check(sidecar int, key string) (codes.Code, error) {
	conn, err := grpc.NewClient(w.sidecars[sidecar].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	r, err := auth.NewAuthorizationClient(conn).Check(context.Background(),
		&auth.CheckRequest{Attributes: &auth.AttributeContext{
			ContextExtensions: map[string]string{"domain": "api"},
			Source:            peerAt("192.0.2.1"),
			Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{Method: "GET",
				Path: "/", Headers: map[string]string{"x-api-key": key}}},
		}})
	if err != nil {
		return 0, err
	}
	return codes.Code(r.GetStatus().GetCode()), nil
}

// awaitCode waits until requests with a key are answered so on every sidecar.
func (w *world) awaitCode(what, key string, want codes.Code) {
	w.t.Helper()
	for i := range w.sidecars {
		servers.Await(w.t, what, func() error {
			got, err := w.check(i, key)
			if err == nil && got != want {
				err = fmt.Errorf("sidecar %d answers %v", i, got)
			}
			return err
		})
	}
}

// TestAKeyWorksThroughASidecar makes a tier, a user and a key. The key is limited by the tier, then by the user's
// quota, then blocked, then revoked.
func TestAKeyWorksThroughASidecar(t *testing.T) {
	w := newWorld(t, 1, 2)
	const d = "/v1/domains/api"
	w.must("POST", versions, map[string]any{"text": "domain: api\nidentity: { order: [api_key, ip], api_keys: { " +
		"header: x-api-key } }\nrules:\n  - { name: none, scope: ip, limit: 1000/1m }\n"})
	w.must("PUT", d+"/tiers/small",
		map[string]any{"display_name": "Small", "price": 9.5, "limits": []any{map[string]any{"count": 3, "per": "1h"}}})
	user := w.must("PUT", d+"/users/ann", map[string]any{"tier": "small"})
	made := w.must("POST", d+"/keys", map[string]any{"id": "ann-1", "user": "ann"})
	secret, _ := made.body["secret"].(string)
	if secret == "" || made.body["prefix"] != secret[:10] {
		t.Fatalf("the secret is not shown: %s", made.text)
	}
	for _, path := range []string{"/keys", "/keys/ann-1"} {
		if got := w.must("GET", d+path, nil); strings.Contains(got.text, secret) {
			t.Errorf("%s shows the secret again", path)
		}
	}
	if got := w.must("GET", "/v1/audit?limit=1000", nil); strings.Contains(got.text, secret) {
		t.Error("the audit shows the secret")
	}
	w.awaitCode("the limit of the tier", secret, codes.ResourceExhausted) // three pass, whichever sidecar they ask
	user = w.must("PUT", d+"/users/ann", map[string]any{"tier": "small", "quota_hour": 1_000_000,
		"quota_day": 2_000_000, "quota_month": 30_000_000}, "If-Match", user.etag)
	w.awaitCode("the quota of the user", secret, codes.OK)
	block := w.must("PUT", d+"/blocks/user/ann", map[string]any{"reason": "unpaid"}, "If-Match", user.etag)
	w.awaitCode("the block", secret, codes.PermissionDenied)
	if got := w.must("GET", d+"/blocks", nil); !strings.Contains(got.text, "unpaid") {
		t.Errorf("the list of blocks is %s", got.text)
	}
	w.must("DELETE", d+"/blocks/user/ann", nil, "If-Match", block.etag)
	w.awaitCode("the end of the block", secret, codes.OK)
	w.must("PUT", d+"/blocks/ip/192.0.2.0/24", map[string]any{"reason": "flood"})
	w.awaitCode("the block of the network", secret, codes.PermissionDenied)
	w.must("DELETE", d+"/blocks/ip/192.0.2.0/24", nil, "If-Match", "*")
	w.awaitCode("the end of the block of the network", secret, codes.OK)
	w.must("DELETE", d+"/keys/ann-1", nil, "If-Match", made.etag)
	w.awaitKey(secret, false)
	refusals(t, w)
}

// awaitKey waits until a sidecar knows the requests with a key as those of ann, or no longer does.
func (w *world) awaitKey(secret string, valid bool) {
	w.t.Helper()
	servers.Await(w.t, fmt.Sprintf("a key that is valid: %v", valid), func() error {
		got := w.send("http://"+w.sidecars[0].Debug, "POST", "/v1/explain",
			map[string]any{"http": map[string]any{"domain": "api", "method": "GET", "path": "/", "peer": "192.0.2.1",
				"headers": map[string]string{"x-api-key": secret}}})
		if got.status != http.StatusOK || strings.Contains(got.text, "ann") != valid {
			return fmt.Errorf("it answers %d %s", got.status, got.text)
		}
		return nil
	})
}

// refusals are changes that must not be made.
func refusals(t *testing.T, w *world) {
	t.Helper()
	const d = "/v1/domains/api"
	for _, c := range []struct {
		method, path string
		body         any
		want         int
	}{
		{"DELETE", d + "/tiers/small", nil, http.StatusConflict},
		{"PUT", d + "/users/eve", map[string]any{"tier": "nowhere"}, http.StatusUnprocessableEntity},
		{"PUT", d + "/users/eve", map[string]any{"quota_hour": -1}, http.StatusUnprocessableEntity},
		{"PUT", d + "/users/eve", map[string]any{"burst": 5}, http.StatusUnprocessableEntity},
		{"PUT", d + "/users/eve", map[string]any{"quota_week": 5}, http.StatusBadRequest},
		{"PUT", d + "/tiers/big", map[string]any{"limits": []any{map[string]any{"count": 1}}},
			http.StatusBadRequest},
		{"POST", d + "/keys", map[string]any{"id": "k", "user": "unknown"}, http.StatusUnprocessableEntity},
		{"POST", d + "/keys", map[string]any{"id": "ann-1", "user": "ann"}, http.StatusConflict},
		{"PUT", d + "/blocks/ip/nowhere", map[string]any{}, http.StatusUnprocessableEntity},
		{"PUT", d + "/blocks/planet/mars", map[string]any{}, http.StatusBadRequest},
		{"GET", d + "/users/eve", nil, http.StatusNotFound},
		{"PATCH", d + "/users/eve", nil, http.StatusMethodNotAllowed},
		{"GET", "/v2", nil, http.StatusNotFound},
	} {
		if got := w.call(0, c.method, c.path, c.body); got.status != c.want {
			t.Errorf("%s %s %v answers %d, want %d: %s", c.method, c.path, c.body, got.status, c.want, got.text)
		}
	}
	if got := w.call(0, "DELETE", d+"/tiers/small", nil, "If-Match", "*"); got.status != http.StatusConflict {
		t.Errorf("removing a tier in use answers %d: %s", got.status, got.text)
	}
}

// TestRolesBoundWhatTokensMayDo holds every operation against the three roles.
func TestRolesBoundWhatTokensMayDo(t *testing.T) {
	var lines []string
	secrets := map[string]string{}
	for _, role := range []string{"viewer", "operator", "admin"} {
		secret, line, err := api.TokenFile.New(role, "the-"+role)
		if err != nil {
			t.Fatal(err)
		}
		secrets[role], lines = secret, append(lines, line)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	must.Do(t, os.WriteFile(file, []byte("# who may\n"+strings.Join(lines, "\n")+"\n"), 0o600))
	w := newWorld(t, 1, 0, "CONTROL_TOKEN_FILE="+file)
	for _, c := range []struct {
		role, method, path string
		body               any
		want               int
	}{
		{"", "GET", "/v1/domains", nil, 401},
		{"viewer", "GET", "/v1/domains", nil, 200},
		{"viewer", "GET", "/v1/openapi.json", nil, 200},
		{"viewer", "PUT", "/v1/domains/api/users/ann", map[string]any{}, 403},
		{"operator", "PUT", "/v1/domains/api/users/ann", map[string]any{}, 201},
		{"operator", "PUT", "/v1/domains/api/tiers/small", map[string]any{}, 403},
		{"operator", "POST", versions, map[string]any{"text": rulesOf(1)}, 403},
		{"admin", "PUT", "/v1/domains/api/tiers/small", map[string]any{}, 201},
		{"admin", "POST", versions, map[string]any{"text": rulesOf(1)}, 201},
	} {
		got := w.call(0, c.method, c.path, c.body, "Authorization", "Bearer "+secrets[c.role])
		if got.status != c.want {
			t.Errorf("%s: %s %s answers %d, want %d: %s", c.role, c.method, c.path, got.status, c.want, got.text)
		}
	}
	got := w.call(0, "GET", "/v1/audit", nil, "Authorization", "Bearer "+secrets["viewer"])
	for _, who := range []string{"the-operator", "the-admin"} {
		if !strings.Contains(got.text, who) {
			t.Errorf("the audit does not name %s: %s", who, got.text)
		}
	}
}
