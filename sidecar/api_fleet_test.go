package sidecar

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

func TestAllSidecarsAndTheirTopKeys(t *testing.T) {
	redis := servers.StartRedis(t)
	environ := []string{"REDIS_URL=" + redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s"}
	one, other := begin(t, operatedRules, environ...), begin(t, fewPerHour, environ...)
	expectCodes(t, dial(t, one.Addresses().GRPC), "alice", codeOK, codeOK, codeOver)
	expectCodes(t, dial(t, other.Addresses().GRPC), "bob", codeOK)
	servers.Await(t, "both sidecars", func() error {
		status, answer := one.call(t, "GET", "/v1/sidecars", nil)
		all, _ := answer["sidecars"].([]any)
		if status != http.StatusOK || len(all) != 2 || answer["rules_agree"] != false {
			return fmt.Errorf("the sidecars are %d %v", status, answer)
		}
		return nil
	})
	var top map[string]any
	servers.Await(t, "the top keys of both", func() error {
		var status int
		status, top = one.call(t, "GET", "/v1/top?all=true", nil)
		text := fmt.Sprint(top["asked"])
		if status != http.StatusOK || top["sidecars"] != 2.0 || !strings.Contains(text, "alice") ||
			!strings.Contains(text, "bob") {
			return fmt.Errorf("the top keys of all are %d %v", status, top)
		}
		return nil
	})
	if refused := fmt.Sprint(top["refused"]); !strings.Contains(refused, "alice") || strings.Contains(refused, "bob") {
		t.Errorf("the keys that are refused most are %v", top["refused"])
	}
	other.operate(t, "/v1/tier", fields{"user": "ann", "limits": []fields{{"count": 1, "per": "1h"}}})
	await(t, dial(t, other.Addresses().GRPC), "ann", codeOver)
	_, own := other.call(t, "GET", "/v1/top?rule=user&limit=1", nil)
	if text := fmt.Sprint(own["refused"]); !strings.Contains(text, "who:[map[kind:user name:ann]]") {
		t.Errorf("the top key of ann's own limit does not name her: %s", text)
	}
	_, alone := one.call(t, "GET", "/v1/top?rule=each&limit=1", nil)
	if list := alone["asked"].([]any); len(list) != 1 || strings.Contains(fmt.Sprint(list), "bob") {
		t.Errorf("the top key of one sidecar is %v", alone)
	}
}

func TestRulesAndConfigShowNoSecrets(t *testing.T) {
	redis := servers.StartRedis(t, "--requirepass", "hunter2hunter2")
	s := begin(t, operatedRules, "REDIS_URL=redis://:hunter2hunter2@"+redis.Addr, "KEY_SECRET=0123456789abcdef",
		"STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	_, config := s.call(t, "GET", "/v1/config", nil)
	text := fmt.Sprint(config)
	if strings.Contains(text, "hunter2hunter2") || strings.Contains(text, "0123456789abcdef") ||
		!strings.Contains(text, redis.Addr) {
		t.Errorf("the settings are %v", text)
	}
	_, rules := s.call(t, "GET", "/v1/rules?domain=shop", nil)
	if text := fmt.Sprint(rules); !strings.Contains(text, "rules.yaml:5") || rules["hash"] == "" {
		t.Errorf("the rules are %v", rules)
	}
}

// TestThisMachineMayBeAViewer: without tokens the role of this machine is the one that is set.
func TestThisMachineMayBeAViewer(t *testing.T) {
	for environ, want := range map[string]int{"ADMIN_LOCAL=view": http.StatusForbidden,
		"ADMIN_LOCAL=operate": http.StatusOK} {
		s := begin(t, fewPerHour, environ)
		if status, answer := s.call(t, "GET", "/v1/rules", nil); status != http.StatusOK {
			t.Errorf("%s: reading is answered with %d %v", environ, status, answer)
		}
		if status, answer := s.call(t, "POST", "/v1/tier", fields{"domain": "shop", "user": "ann",
			"limits": []fields{{"unlimited": true}}}); status != want {
			t.Errorf("%s: a change is answered with %d %v, want %d", environ, status, answer, want)
		}
	}
}

func TestClientCertificatesHaveRoles(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	s := begin(t, fewPerHour, "ADMIN_TLS_CERT="+cert, "ADMIN_TLS_KEY="+key, "ADMIN_TLS_CLIENT_CA="+a.file,
		"ADMIN_TLS_OPERATORS=spiffe://mesh/olga")
	for i, c := range []struct {
		name              string
		view, operate, at int
	}{{"olga", 200, 200, 200}, {"vera", 200, 403, 200}, {"", 401, 401, 200}} {
		pool := x509.NewCertPool()
		pool.AddCert(a.cert)
		cfg := &tls.Config{RootCAs: pool, ServerName: "server"}
		if c.name != "" {
			file, private := a.issue(t, c.name, int64(10+i))
			pair := must.Get(tls.LoadX509KeyPair(file, private))(t)
			cfg.Certificates = []tls.Certificate{pair}
		}
		client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: cfg,
			DisableKeepAlives: true}}
		base := "https://" + s.Addresses().Debug
		for _, ask := range []struct {
			method, path, body string
			want               int
		}{{"GET", "/v1/rules", "", c.view}, {"POST", "/v1/unblock", `{"user":"x"}`, c.operate},
			{"GET", "/metrics", "", c.at}} {
			request := must.Get(http.NewRequestWithContext(t.Context(), ask.method, base+ask.path,
				strings.NewReader(ask.body)))(t)
			request.Header.Set("Content-Type", "application/json")
			answer := must.Get(client.Do(request))(t)
			answer.Body.Close()
			if answer.StatusCode != ask.want {
				t.Errorf("%s %s of %q = %d, want %d", ask.method, ask.path, c.name, answer.StatusCode, ask.want)
			}
		}
	}
}

// TestWithoutProfilesNothingIsLookedUp counts the commands that Redis gets.
func TestWithoutProfilesNothingIsLookedUp(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, fewPerHour, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	conn := dial(t, s.Addresses().GRPC)
	lookups := func() string {
		for line := range strings.Lines(fmt.Sprint(redis.Do(t, "INFO", "commandstats"))) {
			if strings.HasPrefix(line, "cmdstat_mget:") {
				calls, _, _ := strings.Cut(line, ",")
				return calls
			}
		}
		return "none"
	}
	for n := range 20 {
		expectCodes(t, conn, fmt.Sprint("user-", n), codeOK)
	}
	if got := lookups(); got != "none" {
		t.Errorf("profiles are looked up although there are none: %s", got)
	}
	s.operate(t, "/v1/block", fields{"user": "mallory"})
	for range 20 {
		expectCodes(t, conn, "alice", codeOK)
	}
	// A second one where the sidecar began to receive changes meanwhile: what it knew before that may be outdated.
	if got := lookups(); got != "cmdstat_mget:calls=1" && got != "cmdstat_mget:calls=2" {
		t.Errorf("20 requests of one user with profiles about: %s, want one or two", got)
	}
	s.operate(t, "/v1/block", fields{"ip": "192.0.2.0/24"})
	answer := s.operate(t, "/v1/explain",
		fields{"http": fields{"domain": "shop", "method": "GET", "path": "/", "peer": "192.0.2.77"}})
	if answer["verdict"].(fields)["outcome"] != "blocked" {
		t.Errorf("an address of a network that is blocked: %v", answer["verdict"])
	}
}

func TestStatsShowDecisionsAndTheStore(t *testing.T) {
	redis := servers.StartRedis(t)
	s := begin(t, fewPerHour, "REDIS_URL="+redis.Addr, "STORE_SILENCE=1s", "STORE_PATIENCE=2s")
	conn := dial(t, s.Addresses().GRPC)
	expectCodes(t, conn, "alice", codeOK, codeOK)
	status, answer := s.call(t, "GET", "/v1/stats", nil)
	text := fmt.Sprint(answer["outcomes"], answer["decisions"], answer["caller"])
	if status != 200 || text != "map[allowed:2] [map[domain:shop outcomes:map[allowed:2] rule:each]] "+
		"map[events:true name:local role:operate]" {
		t.Errorf("GET /v1/stats = %d %s", status, text)
	}
	kept := answer["store"].(map[string]any)
	breakers := kept["breakers"].([]any)
	if kept["kind"] != "redis" || kept["latency"].(map[string]any)["count"] == 0.0 || len(breakers) != 1 ||
		breakers[0].(map[string]any)["state"] != "closed" {
		t.Errorf("the store is %v", kept)
	}
	plain := begin(t, fewPerHour)
	_, answer = plain.call(t, "GET", "/v1/stats", nil)
	if kept = answer["store"].(map[string]any); kept["kind"] != "memory" || fmt.Sprint(kept["breakers"]) != "[]" {
		t.Errorf("without Redis the store is %v", kept)
	}
}
