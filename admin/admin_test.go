package admin

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

// get asks a handler, and returns the status and the body.
func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func expect(t *testing.T, h http.Handler, path string, code int, body string) {
	t.Helper()
	gotCode, gotBody := get(h, path)
	if gotCode != code || gotBody != body {
		t.Errorf("GET %s = %d %q, want %d %q", path, gotCode, gotBody, code, body)
	}
}

var teapot = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

func TestProbesWhileServing(t *testing.T) {
	h := Public(&Health{}, teapot)
	expect(t, h, "/healthcheck", 200, "OK")
	expect(t, h, "/livez", 200, "ok\n")
	expect(t, h, "/readyz", 200, "ok\n")
	expect(t, h, "/json", http.StatusTeapot, "")
}

func TestReadyNamesWhatIsDegraded(t *testing.T) {
	h := Public(&Health{Degraded: func() []string { return []string{"rules: no good load yet", "redis: timeout"} }},
		teapot)
	expect(t, h, "/readyz", 200, "ok (degraded: rules: no good load yet; redis: timeout)\n")
	expect(t, h, "/healthcheck", 200, "OK")
}

func TestProbesWhileDraining(t *testing.T) {
	health := &Health{}
	health.Drain()
	h := Public(health, teapot)
	expect(t, h, "/healthcheck", 500, "")
	expect(t, h, "/readyz", 503, "draining\n")
	expect(t, h, "/livez", 200, "ok\n")
	expect(t, h, "/json", http.StatusTeapot, "")
}

func debug(rules func() *descriptors.Set, stats func(io.Writer) error) http.Handler {
	return Debug{Rules: rules, Stats: stats, Metrics: teapot, API: teapot}.Handler()
}

func noRules() *descriptors.Set { return nil }

func oneLine(w io.Writer) error {
	_, err := io.WriteString(w, "hits 1\n")
	return err
}

func TestDebugPages(t *testing.T) {
	h := debug(noRules, oneLine)
	expect(t, h, "/rlconfig", 200, "")
	expect(t, h, "/rules.schema.json", 200, string(rules.Schema()))
	expect(t, h, "/stats", 200, "hits 1\n")
	expect(t, h, "/metrics", http.StatusTeapot, "")
	for _, page := range []string{"/", "/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
		code, body := get(h, page)
		if code != 200 || body == "" {
			t.Errorf("GET %s = %d with %d bytes, want 200 with a page", page, code, len(body))
		}
	}
}

func TestRulesInUseAreDumped(t *testing.T) {
	set, problems := descriptors.Compile(nil, descriptors.Options{})
	if set == nil {
		t.Fatalf("compile nothing: %v", problems)
	}
	expect(t, debug(func() *descriptors.Set { return set }, oneLine), "/rlconfig", 200, "")
}

func TestStatsSayWhatWentWrong(t *testing.T) {
	h := debug(noRules, func(io.Writer) error { return errors.New("no luck") })
	expect(t, h, "/stats", 200, "# no luck\n")
}

func TestMetricsPortServesMetricsOnly(t *testing.T) {
	h := Metrics("/metrics", teapot)
	expect(t, h, "/metrics", http.StatusTeapot, "")
	for _, path := range []string{"/debug/pprof/", "/rlconfig", "/"} {
		code, body := get(h, path)
		if code != 404 || !strings.Contains(body, "/metrics") {
			t.Errorf("GET %s on the metrics port = %d %q, want 404 and a hint", path, code, body)
		}
	}
}

func TestUnknownRoutesGetAHint(t *testing.T) {
	for path, h := range map[string]http.Handler{"/jsn": Public(&Health{}, teapot), "/stat": debug(noRules, oneLine)} {
		code, body := get(h, path)
		if code != 404 || !strings.HasPrefix(body, "not found: this port serves /") {
			t.Errorf("GET %s = %d %q, want 404 and a hint", path, code, body)
		}
	}
}

func TestMetricsAtTheRoot(t *testing.T) {
	expect(t, Metrics("/", teapot), "/", http.StatusTeapot, "")
}
