// Package control_test starts the control plane with a real PostgreSQL, a real Redis and real sidecars, and uses it as
// its callers do.
package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Main(m)) }

// world is a control plane and the sidecars that take what it publishes.
type world struct {
	t        testing.TB
	postgres *servers.Postgres
	redis    *servers.Redis
	controls []*servers.Control
	sidecars []*servers.Sidecar
}

// newWorld starts controls and sidecars on a database of their own.
func newWorld(t testing.TB, controls, sidecars int, env ...string) *world {
	t.Helper()
	return newWorldOn(t, servers.Database(t), controls, sidecars, env...)
}

// newWorldOn is newWorld on a PostgreSQL of the caller's, which it may stop.
func newWorldOn(t testing.TB, postgres *servers.Postgres, controls, sidecars int, env ...string) *world {
	t.Helper()
	w := &world{t: t, postgres: postgres, redis: servers.StartRedis(t)}
	for range controls {
		w.controls = append(w.controls, servers.StartControl(t,
			append([]string{"CONTROL_DATABASE_URL=" + w.postgres.URL, "REDIS_URL=" + w.redis.Addr}, env...)...))
	}
	for range sidecars {
		w.sidecars = append(w.sidecars, servers.StartSidecar(t, "RULES=redis:", "REDIS_URL="+w.redis.Addr,
			"STORE_SILENCE=1s", "STORE_PATIENCE=2s", "LEASES=false"))
	}
	return w
}

// answer is what an API answered.
type answer struct {
	status int
	etag   string
	text   string
	body   map[string]any
}

// call sends a request to a control, with headers as name and value.
func (w *world) call(control int, method, path string, body any, headers ...string) answer {
	w.t.Helper()
	return w.send(w.controls[control].URL, method, path, body, headers...)
}

func (w *world) send(url, method, path string, body any, headers ...string) answer {
	w.t.Helper()
	got, err := try(url, method, path, body, headers...)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func try(url, method, path string, body any, headers ...string) (answer, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, url+path, reader)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	got := answer{status: response.StatusCode, etag: response.Header.Get("ETag"), text: string(text)}
	_ = json.Unmarshal(text, &got.body) // some answers are empty
	return got, err
}

// must is call for one that has to succeed.
func (w *world) must(method, path string, body any, headers ...string) answer {
	w.t.Helper()
	got := w.call(0, method, path, body, headers...)
	if got.status/100 != 2 {
		w.t.Fatalf("%s %s answers %d: %s", method, path, got.status, got.text)
	}
	return got
}

// rulesOf is a rule file of the domain api, in which each user may send so many requests a minute.
func rulesOf(count int) string {
	return fmt.Sprintf(`domain: api
identity:
  order: [api_key, ip]
  api_keys: { header: x-api-key }
rules:
  - { name: per-user, scope: user, limit: %d/1m }
`, count)
}

// awaitVersion waits until a sidecar uses a version of the domain api.
func (w *world) awaitVersion(publication int) {
	w.t.Helper()
	for i, s := range w.sidecars {
		servers.Await(w.t, fmt.Sprintf("publication %d on sidecar %d", publication, i), func() error {
			got, err := try("http://"+s.Debug, "GET", "/v1/rules", nil)
			if err == nil && !strings.Contains(got.text, fmt.Sprintf(`"publication": %d,`, publication)) {
				err = fmt.Errorf("it has %s", got.text)
			}
			return err
		})
	}
}

// ask sends a request of a user to the rate limit service of a sidecar, and reports whether it may pass.
func (w *world) ask(sidecar int, user string) bool {
	w.t.Helper()
	return w.askBy(sidecar, user, "")
}

// askBy is ask with what a mesh sends as the API key of the user, where it sends one.
func (w *world) askBy(sidecar int, user, key string) bool {
	w.t.Helper()
	return w.askWith(sidecar, "user", user, "api_key", key)
}

// askWith is ask with entries as key and value. It leaves out those without a value.
func (w *world) askWith(sidecar int, pairs ...string) bool {
	w.t.Helper()
	var entries []any
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			entries = append(entries, map[string]string{"key": pairs[i], "value": pairs[i+1]})
		}
	}
	got := w.send("http://"+w.sidecars[sidecar].HTTP, "POST", "/json",
		map[string]any{"domain": "api", "descriptors": []any{map[string]any{"entries": entries}}})
	if got.status != http.StatusOK && got.status != http.StatusTooManyRequests {
		w.t.Fatalf("/json answers %d: %s", got.status, got.text)
	}
	return got.status == http.StatusOK
}

// admits counts the requests of a user that pass on all sidecars by turns, of so many.
func (w *world) admits(user string, of int) (passed int) {
	w.t.Helper()
	for i := range of {
		if w.ask(i%len(w.sidecars), user) {
			passed++
		}
	}
	return passed
}
