package browser

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// controlRules let each user send so many requests an hour.
func controlRules(count int) string {
	return fmt.Sprintf("domain: shop\nrules:\n  - { name: per-user, scope: user, limit: %d/1h }\n", count)
}

// call sends a request to the API of a control, and returns the answer.
func call(t *testing.T, control, method, path string, body any, headers ...string) string {
	t.Helper()
	sent := must.Get(json.Marshal(body))(t)
	r := must.Get(http.NewRequest(method, control+path, bytes.NewReader(sent)))(t)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := must.Get(http.DefaultClient.Do(r))(t)
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %s %s (%v)", method, path, answer.Status, got, err)
	}
	return string(got)
}

// keptToItself checks the headers of the page's files for browsers, and that programs get a list.
func keptToItself(t *testing.T, control string) {
	t.Helper()
	for path, accept := range map[string]string{"/": "text/html", "/page/control.js": "*/*",
		"/page/page.css": "text/css", "/page/dom.js": "*/*"} {
		r := must.Get(http.NewRequest("GET", control+path, http.NoBody))(t)
		r.Header.Set("Accept", accept)
		answer := must.Get(http.DefaultClient.Do(r))(t)
		answer.Body.Close()
		policy := answer.Header.Get("Content-Security-Policy")
		if answer.StatusCode != 200 || !strings.Contains(policy, "default-src 'none'") ||
			!strings.Contains(policy, "frame-ancestors 'none'") ||
			answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: %s %v", path, answer.Status, answer.Header)
		}
	}
	if got := call(t, control, "GET", "/", nil); !strings.Contains(got, "/v1/openapi.json") ||
		strings.Contains(got, "<html") {
		t.Errorf("programs get %s", got)
	}
}

// TestThePageOfTheControl compares versions, rolls back, finds a user and revokes a key, all by the page.
func TestThePageOfTheControl(t *testing.T) {
	redis := "REDIS_URL=" + servers.StartRedis(t).Addr
	c := servers.StartControl(t, "CONTROL_DATABASE_URL="+servers.Database(t).URL, redis)
	const hostile = `<img src=x onerror="document.title='owned'">`
	call(t, c.URL, "POST", "/v1/domains/shop/versions", map[string]any{"text": controlRules(3), "note": hostile})
	call(t, c.URL, "POST", "/v1/domains/shop/versions", map[string]any{"text": controlRules(9)}, "If-Match", `"1"`)
	call(t, c.URL, "PUT", "/v1/domains/shop/tiers/gold", map[string]any{"display_name": "Gold"})
	for i := range 30 {
		call(t, c.URL, "PUT", fmt.Sprintf("/v1/domains/shop/users/user-%02d", i), map[string]any{"quota_month": 1000})
	}
	call(t, c.URL, "PUT", "/v1/domains/shop/users/zoe", map[string]any{"tier": "gold"})
	key := call(t, c.URL, "POST", "/v1/domains/shop/keys", map[string]any{"id": "zoe-1", "user": "zoe"})

	s := servers.StartSidecar(t, "RULES=redis:", "RECORD=true", "RECORD_ALLOWED_ONE_IN=1", "STORE_SILENCE=1s",
		"STORE_PATIENCE=2s", redis)
	w := &world{Sidecar: &servers.Sidecar{Debug: strings.TrimPrefix(c.URL, "http://")},
		browser: servers.StartChromium(t), calls: dial(t, s.GRPC)}
	w.tab = w.browser.Open(t, c.URL+"/")
	w.tab.Await(t, `document.body.dataset.state === "live"`)
	t.Run("headers", func(t *testing.T) { keptToItself(t, c.URL) })
	t.Run("versions", func(t *testing.T) {
		w.tab.Await(t, inside("tile-version", "version 2")+" && "+inside("version-list", hostile))
		w.click(t, "#version-list button[aria-label^='Compare version 1']")
		w.tab.Await(t, inside("diff", "9/1h → 3/1h"))
		w.click(t, "[data-publish='1']")
		w.tab.Await(t, `document.getElementById("confirm").open && `+inside("confirm-what", "9/1h → 3/1h"))
		w.set(t, "confirm-note", "too many")
		w.click(t, "#confirm-yes")
		w.tab.Await(t, inside("changed", "Version 1 is in force.")+" && "+inside("tile-version", "version 1"))
		if got := call(t, c.URL, "GET", "/v1/domains/shop/published", nil); !strings.Contains(got, "too many") ||
			!strings.Contains(got, `"version": 1`) {
			t.Errorf("the page rolled back to %s", got)
		}
	})
	t.Run("users", func(t *testing.T) {
		w.tab.Await(t, `document.querySelectorAll("#user-list tbody tr").length === 25`)
		w.click(t, "#users-more")
		w.tab.Await(t, `document.querySelectorAll("#user-list tbody tr").length === 31`)
		w.set(t, "users-tier", "gold")
		w.click(t, "#users-find button")
		w.tab.Await(t, `document.querySelectorAll("#user-list tbody tr").length === 1 && `+inside("user-list", "zoe"))
		w.set(t, "users-tier", "")
		w.set(t, "users-prefix", "user-1")
		w.click(t, "#users-find button")
		w.tab.Await(t, `document.querySelectorAll("#user-list tbody tr").length === 10 && `+
			inside("user-list", "1000 a month"))
	})
	t.Run("usage", func(t *testing.T) {
		for range 5 {
			w.ask(t, "user-11")
		}
		servers.Await(t, "usage on record", func() error {
			if got := call(t, c.URL, "GET", "/v1/domains/shop/usage?user=user-11", nil); !strings.Contains(got,
				`"admitted": 5`) || !strings.Contains(got, `"samples": 5`) {
				return errors.New(got)
			}
			return nil
		})
		w.set(t, "usage-user", "user-11")
		w.click(t, "#usage-of button")
		w.tab.Await(t, inside("usage-note", "5 admitted with the cost 5, 0 refused")+` && `+
			inside("usage-note", "ms, by 5 events.")+` && document.querySelector("#usage-chart `+
			`path.o-allowed").getAttribute("d") !== ""`)
		w.click(t, "input[name=span][value=month]")
		w.tab.Await(t, inside("usage-chart", "30 days ago"))
		w.click(t, "#users-find button")
		w.tab.Await(t, inside("user-list", "5 of 1000")+` && document.querySelector("#user-list .meter")`)
	})
	t.Run("keys", func(t *testing.T) {
		var made struct{ Prefix, Secret string }
		must.Do(t, json.Unmarshal([]byte(key), &made))
		w.tab.Await(t, inside("key-list", made.Prefix))
		w.click(t, "[data-revoke='zoe-1']")
		w.tab.Await(t, inside("confirm-what", "zoe"))
		w.click(t, "#confirm-yes")
		w.tab.Await(t, inside("key-list", "revoked")+" && "+inside("audit-list", "revoke"))
		var secret bool
		w.tab.Evaluate(t, "document.documentElement.textContent.includes("+text(made.Secret)+")", &secret)
		if secret {
			t.Error("the page shows a secret")
		}
	})
	var title string
	w.tab.Evaluate(t, "document.title", &title)
	if title != "Spillway control" {
		t.Errorf("a note is read as markup: the title is %q", title)
	}
	w.own(t)
}

// TestThePageOfTheControlCanBeRead looks at it with all lists filled, with its dialogs, and without Redis.
func TestThePageOfTheControlCanBeRead(t *testing.T) {
	redis := servers.StartRedis(t)
	c := servers.StartControl(t, "CONTROL_DATABASE_URL="+servers.Database(t).URL, "REDIS_URL="+redis.Addr)
	const long = "a-user-with-a-name-without-a-place-to-break-that-is-longer-than-any-phone-is-wide@example.com"
	const d = "/v1/domains/shop"
	call(t, c.URL, "POST", d+"/versions", map[string]any{"text": controlRules(3), "note": long})
	call(t, c.URL, "POST", d+"/versions", map[string]any{"text": controlRules(9)}, "If-Match", `"1"`)
	call(t, c.URL, "PUT", d+"/tiers/gold", map[string]any{"display_name": "Gold"})
	call(t, c.URL, "PUT", d+"/users/"+long, map[string]any{"tier": "gold", "quota_month": 1000})
	call(t, c.URL, "PUT", d+"/blocks/user/mallory", map[string]any{"reason": "unpaid"})
	for _, id := range []string{"old", "new"} {
		call(t, c.URL, "POST", d+"/keys", map[string]any{"id": id, "user": long})
	}
	call(t, c.URL, "DELETE", d+"/keys/old", nil, "If-Match", "*")
	w := &world{Sidecar: &servers.Sidecar{Debug: strings.TrimPrefix(c.URL, "http://")},
		browser: servers.StartChromium(t)}
	w.tab = w.browser.Open(t, c.URL+"/")
	w.tab.Await(t, inside("user-list", long)+" && "+inside("user-list", "unpaid")+" && "+
		inside("user-list", "0 of 1000")+" && "+inside("key-list", "revoked")+" && "+
		inside("audit-list", "revoke")+" && "+inside("version-list", long))
	w.click(t, "#version-list button[aria-label^='Compare version 1']")
	w.tab.Await(t, inside("diff", "9/1h → 3/1h"))
	w.readable(t)
	w.click(t, "[data-revoke=new]")
	w.tab.Await(t, `document.getElementById("confirm").open && `+inside("confirm-what", long))
	w.readable(t)
	w.click(t, "#confirm-no")
	w.click(t, "[data-publish='1']")
	w.tab.Await(t, `document.getElementById("confirm").open && `+inside("confirm-what", "9/1h → 3/1h"))
	w.readable(t)
	w.click(t, "#confirm-no")
	w.own(t)
	redis.Kill(t)
	w.tab.Await(t, inside("notices", "It cannot publish now"))
	w.readable(t)
}
