package api

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/control/database/questions"
	"github.com/spillway-mesh/spillway/control/leader"
	"github.com/spillway-mesh/spillway/control/publish"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/must"
)

// tokenOf is one who is known by a secret.
func tokenOf(role httpapi.Role, name, secret string, domains ...string) httpapi.Token {
	c := httpapi.Caller{Name: name, Role: role, Domains: domains}
	return httpapi.Token{Caller: c, Digest: sha256.Sum256([]byte(secret))}
}

// TestEveryRouteKeepsToDomains asks each operation with a token that is for the domain shop alone. An operation is
// about the domain in its path; the few without one show nothing of a domain, leave out those of others, or are
// refused.
func TestEveryRouteKeepsToDomains(t *testing.T) {
	refused := map[string]bool{ // operations without a domain in their paths: are they for those who may use all?
		"/v1/openapi.json": false, "/v1/status": false, "/v1/questions": false, "/v1/domains": false,
		"/v1/audit":    false,
		"/v1/erasures": false, "/v1/erasures/{erasure}": false, "/v1/record": true,
	}
	secret, d := "limited", migrated(t)
	text := must.Get(json.Marshal(apiOf(t, d).Operations().Document()))(t)
	var document struct{ Paths map[string]map[string]any }
	must.Do(t, json.Unmarshal(text, &document))
	server := serving(t, d, tokenOf(httpapi.Administer, "ann", secret, "shop", "shop-test"))
	filled := strings.NewReplacer("{domain}", "other", "{kind}", "user", "{name}", "x", "{id}", "x", "{version}", "1",
		"{erasure}", "1")
	for path, methods := range document.Paths {
		oneDomain := strings.HasPrefix(path, "/v1/domains/{domain}/")
		want, known := refused[path]
		if oneDomain == known {
			t.Errorf("%s: name the domain in its path, or write here what it shows", path)
		}
		for method := range methods {
			method, at := strings.ToUpper(method), filled.Replace(path)
			status, text := askedAs(t, server, secret, method, at, "{}")
			was := status == http.StatusForbidden && strings.Contains(text, "domains shop, shop-test alone")
			if was != (want || oneDomain) {
				t.Errorf("%s %s: %d %.100s; is it refused? want %v", method, at, status, text, want || oneDomain)
			}
			own := strings.Replace(at, "/other/", "/shop/", 1)
			status, text = askedAs(t, server, secret, method, own, "{}")
			if oneDomain && (status == http.StatusForbidden || status == http.StatusUnauthorized) {
				t.Errorf("%s %s: %d %.100s", method, own, status, text)
			}
		}
	}
	if status, _ := askedAs(t, server, secret, "GET", "/metrics", ""); status != http.StatusForbidden {
		t.Errorf("the metrics of all domains: %d", status)
	}
}

// TestTheDocumentNamesWhatAQuestionNeeds reads the parameters of each question in the OpenAPI document.
func TestTheDocumentNamesWhatAQuestionNeeds(t *testing.T) {
	text := must.Get(json.Marshal((&API{}).Operations().Document()))(t)
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Required bool
			}
		}
	}
	must.Do(t, json.Unmarshal(text, &document))
	for i := range questions.All {
		q := &questions.All[i]
		needed, all := "", map[string]bool{}
		for _, p := range document.Paths[questionPath(q)]["get"].Parameters {
			if p.In != "query" {
				continue
			}
			all[p.Name] = true
			if p.Required {
				needed += p.Name
			}
		}
		if needed != q.Needs {
			t.Errorf("%s needs %q by the document, want %q", q.Name, needed, q.Needs)
		}
		for _, name := range q.Parameters() {
			if !all[name] || len(all) != len(q.Parameters()) {
				t.Errorf("%s has the parameters %v, want %v", q.Name, all, q.Parameters())
			}
		}
	}
}

// TestListsLeaveOutOtherDomains reads lists of all domains with a token for one of them.
func TestListsLeaveOutOtherDomains(t *testing.T) {
	d := migrated(t)
	for _, domain := range []string{"shop", "other"} {
		_, _, err := d.AddVersion(t.Context(), database.Actor{Name: "ann"}, domain, "domain: "+domain, "", true, nil)
		if err == nil {
			_, err = d.AskErasure(t.Context(), database.Actor{Name: "ann"},
				database.Subject{Domain: domain, Kind: database.KindUser, Name: "x"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const one = "for one domain"
	limited := tokenOf(httpapi.View, "ann", one, "shop")
	all := tokenOf(httpapi.View, "bob", "for all")
	api := apiOf(t, d, limited, all)
	api.Leader.Note("feed", errors.New("publish the rules of the domain \"other\": Redis is away"))
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	for secret, want := range map[string]string{one: "cannot publish now", "for all": "Redis is away"} {
		status, text := askedAs(t, server, secret, "GET", "/v1/status", "")
		if status != http.StatusOK || !strings.Contains(text, want) ||
			strings.Contains(text, "other") != (secret != one) {
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
	request := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	answer := must.Get(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(text)
}

// serving serves the API of a database, to those who have a token, or to this machine.
func serving(t *testing.T, d *database.DB, tokens ...httpapi.Token) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(apiOf(t, d, tokens...).Handler())
	t.Cleanup(server.Close)
	return server
}

// apiOf is the API of a database, for those who have a token, or for this machine.
func apiOf(t *testing.T, d *database.DB, tokens ...httpapi.Token) *API {
	t.Helper()
	servers := redis.New(redis.Config{
		Servers: redis.Servers{Addresses: []string{"127.0.0.1:1"}},
	})
	t.Cleanup(servers.Close)
	keys := keys.NewNames("", nil)
	log := slog.New(slog.DiscardHandler)
	publisher := publish.New(publish.Config{Database: d, Redis: servers, Keys: keys, Log: log})
	t.Cleanup(func() { publisher.Close() })
	lead := leader.New(leader.Config{Connect: d.Connect, Log: log})
	api := &API{Database: d, Publisher: publisher, Leader: lead, Keys: keys, Log: log}
	if len(tokens) > 0 {
		api.Tokens = func() []httpapi.Token { return tokens }
	}
	return api
}
