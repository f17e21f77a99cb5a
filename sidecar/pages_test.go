package sidecar

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestNoPortAnswersPagesOfOthers asks every route as a page of another origin does, and the pages with something to
// read under a name that was made to lead here.
func TestNoPortAnswersPagesOfOthers(t *testing.T) {
	s := begin(t, twoPerYear, "USE_PROMETHEUS=true")
	a := s.Addresses()
	for address, paths := range map[string][]string{
		a.HTTP: {"/json", "/healthcheck", "/livez", "/readyz", "/"}, a.Metrics: {"/metrics", "/"},
		a.Debug: {
			"/", "/rlconfig", "/rules.schema.json", "/stats", "/metrics", "/loglevel", "/v1/rules",
			"/debug/pprof/", "/debug/pprof/cmdline",
		},
	} {
		for _, path := range paths {
			for _, header := range []string{"Sec-Fetch-Site: cross-site", "Origin: http://evil.example"} {
				if got := askAs(t, "http://"+address+path, "localhost", header); got != http.StatusForbidden {
					t.Errorf("%s with %s: %d, want 403", path, header, got)
				}
			}
			got := askAs(t, "http://"+address+path, "evil.example", "")
			if address != a.HTTP && got != http.StatusForbidden {
				t.Errorf("%s of the host evil.example: %d, want 403", path, got)
			}
		}
	}
	if got := askAs(t, "http://"+a.HTTP+"/healthcheck", "the-name-of-a-cluster", ""); got != http.StatusOK {
		t.Errorf("a health check of Envoy: %d, want 200", got)
	}
}

// askAs gets a page under the name of a host, with one more header.
func askAs(t *testing.T, url, host, header string) int {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	r.Host = host
	if name, value, ok := strings.Cut(header, ": "); ok {
		r.Header.Set(name, value)
	}
	client := browser()
	answer := must.Get(client.Do(r))(t)
	answer.Body.Close()
	return answer.StatusCode
}
