package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/redis"
)

// lineOf is a line of a file of tokens.
func lineOf(role, name, secret, domains string) string {
	digest := sha256.Sum256([]byte(secret))
	return strings.TrimSpace(role+" "+name+" "+hex.EncodeToString(digest[:])+" "+domains) + "\n"
}

// TestTokenLines reads what NewToken writes, and refuses lines that are wrong without showing the digest.
func TestTokenLines(t *testing.T) {
	secret, line, err := NewToken("operator", "ann", "shop", "shop-test")
	token, wrong := parseToken(strings.Fields(line))
	good := token.Role == Operator && token.Name == "ann" && token.Digest == sha256.Sum256([]byte(secret))
	if err != nil || wrong != nil || !good || !token.may("shop-test") || token.may("other") {
		t.Errorf("%q is read as %v: %v, %v", line, token.Caller, err, wrong)
	}
	for _, args := range [][]string{
		{"root", "ann"}, {"admin", ""}, {"admin", "a b"}, {"admin", "ann", ""}, {"admin", "ann", "a b"},
	} {
		if _, _, err = NewToken(args[0], args[1], args[2:]...); err == nil {
			t.Errorf("a token of %q is made", args)
		}
	}
	digest := strings.Fields(line)[2]
	for _, text := range []string{
		"root ann " + digest, "admin ann", "admin ann " + digest[1:], "admin ann " + digest + " a,,b", "admin ann " + digest + " a b",
	} {
		_, err = parseToken(strings.Fields(text))
		if err == nil || strings.Contains(err.Error(), digest[1:]) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestEveryRouteKeepsToDomains asks each route with a token that is for the domain shop alone. A route is about the
// domain in its path; the few without one show nothing of a domain, leave out those of others, or are refused.
func TestEveryRouteKeepsToDomains(t *testing.T) {
	want := map[string]reach{
		"/v1/openapi.json": noDomain, "/v1/status": noDomain, "/v1/questions": noDomain,
		"/v1/domains": ownDomains, "/v1/audit": ownDomains,
		"/v1/erasures": ownDomains, "/v1/erasures/{erasure}": ownDomains,
		"/v1/caches": allDomains, "/v1/record": allDomains,
	}
	secret := "limited"
	token, err := parseToken(strings.Fields(lineOf("admin", "ann", secret, "shop,shop-test")))
	if err != nil {
		t.Fatal(err)
	}
	for i := range routes {
		r := &routes[i]
		about, known := want[r.path]
		if strings.HasPrefix(r.path, "/v1/domains/{domain}/") == known || r.reach != about {
			t.Errorf("%s %s has the reach %d: name the domain in its path, or write here what it shows", r.method, r.path,
				r.reach)
		}
	}
	server := serving(t, migrated(t), token)
	filled := strings.NewReplacer("{domain}", "other", "{kind}", "user", "{name}", "x", "{name...}", "x", "{id}", "x",
		"{version}", "1", "{erasure}", "1")
	for i := range routes {
		r := &routes[i]
		path := filled.Replace(r.path)
		status, text := askedAs(t, server, secret, r.method, path, "{}")
		refused := status == http.StatusForbidden && strings.Contains(text, "domains shop, shop-test alone")
		if wants := r.reach == oneDomain || r.reach == allDomains; refused != wants {
			t.Errorf("%s %s: %d %.100s; is it refused? want %v", r.method, path, status, text, wants)
		}
		own := strings.Replace(path, "/other/", "/shop/", 1)
		status, text = askedAs(t, server, secret, r.method, own, "{}")
		if r.reach == oneDomain && (status == http.StatusForbidden || status == http.StatusUnauthorized) {
			t.Errorf("%s %s: %d %.100s", r.method, own, status, text)
		}
	}
	if status, _ := askedAs(t, server, secret, "GET", "/metrics", ""); status != http.StatusForbidden {
		t.Errorf("the metrics of all domains: %d", status)
	}
}

// TestListsLeaveOutOtherDomains reads lists of all domains with a token for one of them.
func TestListsLeaveOutOtherDomains(t *testing.T) {
	d := migrated(t)
	for _, domain := range []string{"shop", "other"} {
		_, _, err := d.AddVersion(t.Context(), database.Actor{Name: "ann"}, domain, "domain: "+domain, "", true, nil)
		if err == nil {
			_, err = d.AskErasure(t.Context(), database.Actor{Name: "ann"}, database.Subject{Domain: domain, Kind: database.KindUser, Name: "x"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const one = "for one domain"
	limited, err := parseToken(strings.Fields(lineOf("viewer", "ann", one, "shop")))
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseToken(strings.Fields(lineOf("viewer", "bob", "for all", "")))
	if err != nil {
		t.Fatal(err)
	}
	api := apiOf(t, d, limited, all)
	api.Leader.Note("feed", errors.New("publish the rules of the domain \"other\": Redis is away"))
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	for secret, want := range map[string]string{one: "cannot publish now", "for all": "Redis is away"} {
		status, text := askedAs(t, server, secret, "GET", "/v1/status", "")
		if status != http.StatusOK || !strings.Contains(text, want) || strings.Contains(text, "other") != (secret != one) {
			t.Errorf("%s: the status is %d %s, want %q", secret, status, text, want)
		}
	}
	for _, path := range []string{"/v1/domains", "/v1/erasures", "/v1/audit"} {
		for secret, want := range map[string]bool{one: false, "for all": true} {
			status, text := askedAs(t, server, secret, "GET", path, "")
			own, others := strings.Contains(text, `"shop"`), strings.Contains(text, `"other"`)
			if status != http.StatusOK || !own || others != want {
				t.Errorf("%s %s: %d %s", secret, path, status, text)
			}
		}
	}
	for path, want := range map[string]int{
		"/v1/erasures/1": 200, "/v1/erasures/2": 404, "/v1/audit?domain=other": 403, "/v1/audit?domain=shop": 200,
	} {
		if status, text := askedAs(t, server, one, "GET", path, ""); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, text, want)
		}
	}
}

// askedAs sends a request with a token.
func askedAs(t *testing.T, server *httptest.Server, token, method, path, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// serving serves the API of a database, to those who have a token, or to this machine.
func serving(t *testing.T, d *database.DB, tokens ...Token) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(apiOf(t, d, tokens...).Handler())
	t.Cleanup(server.Close)
	return server
}

// apiOf is the API of a database, for those who have a token, or for this machine.
func apiOf(t *testing.T, d *database.DB, tokens ...Token) *API {
	t.Helper()
	servers := redis.New(redis.Config{
		Servers: redis.Servers{Addresses: []string{"127.0.0.1:1"}},
	})
	t.Cleanup(servers.Close)
	keys := descriptors.NewRecordKeys("", nil)
	log := slog.New(slog.DiscardHandler)
	publisher := publish.New(publish.Config{Database: d, Redis: servers, Keys: keys, Log: log})
	t.Cleanup(func() { publisher.Close() })
	lead := leader.New(leader.Config{Connect: d.Connect, Log: log})
	api := &API{Database: d, Publisher: publisher, Leader: lead, Keys: keys, Log: log}
	if len(tokens) > 0 {
		api.Tokens = func() []Token { return tokens }
	}
	return api
}
