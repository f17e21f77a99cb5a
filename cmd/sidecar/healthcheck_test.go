package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// probed starts a server that answers /readyz, and returns the environment of a health check that asks it.
func probed(t *testing.T, status int, body string, more ...string) []string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return append(more, "PORT="+portOf(server.Listener.Addr().String()))
}

func TestHealthcheckOfAReadySidecar(t *testing.T) {
	for name, environ := range map[string][]string{
		"loopback":         probed(t, http.StatusOK, "ok\n"),
		"every interface":  probed(t, http.StatusOK, "ok\n", "HOST=0.0.0.0"),
		"beside a proxy":   probed(t, http.StatusOK, "ok\n", "HTTP_PROXY=http://127.0.0.1:1"),
		"by another's env": probed(t, http.StatusOK, "ok\n", "REDIS_URL=redis:6379", "USE_STATSD=false"),
	} {
		code, out, errs := program(environ, "healthcheck")
		if code != 0 || out != "healthy: ok\n" || errs != "" {
			t.Errorf("%s: healthcheck = %d, %q, %q, want 0 and one line", name, code, out, errs)
		}
	}
}

func TestHealthcheckTellsWhatIsDegraded(t *testing.T) {
	code, out, _ := program(probed(t, http.StatusOK, "ok (degraded: store: refused)\n"), "healthcheck")
	if code != 0 || out != "healthy: ok (degraded: store: refused)\n" {
		t.Errorf("healthcheck of a degraded sidecar = %d, %q, want 0 and why", code, out)
	}
}

func TestHealthcheckOfWhatIsNotReady(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone := portOf(l.Addr().String())
	l.Close()
	for want, environ := range map[string][]string{
		"503 Service Unavailable: draining now": probed(t, http.StatusServiceUnavailable, "draining\nnow\n"),
		"connection refused":                    {"PORT=" + gone},
		"PORT is 0":                             {"PORT=0"},
		`PORT: "x" is not a port: 0 to 65535; `: {"PORT=x", "LOG_LEVEL=x"},
	} {
		code, out, errs := program(environ, "healthcheck")
		if code != 1 || out != "" || !strings.HasPrefix(errs, "unhealthy: ") || !strings.Contains(errs, want) ||
			strings.Count(errs, "\n") != 1 {
			t.Errorf("healthcheck with %q = %d, %q, %q, want 1 and one line with %q", environ, code, out, errs, want)
		}
	}
}

// TestHealthcheckOfALiveSidecar: one that is not ready lives, and must not be restarted for that.
func TestHealthcheckOfALiveSidecar(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/livez" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	environ := []string{"PORT=" + portOf(server.Listener.Addr().String())}
	if code, _, errs := program(environ, "healthcheck", "live"); code != 0 {
		t.Errorf("healthcheck live = %d, %q, want 0", code, errs)
	}
	if code, _, errs := program(environ, "healthcheck"); code != 1 {
		t.Errorf("healthcheck = %d, %q, want 1", code, errs)
	}
}

func TestHealthcheckDoesNotWaitForever(t *testing.T) {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() // it takes connections and answers nothing
	code, _, errs := program([]string{"PORT=" + portOf(l.Addr().String())}, "healthcheck")
	if code != 1 || !strings.Contains(errs, "Timeout") {
		t.Errorf("healthcheck of a silent sidecar = %d, %q, want 1 and a timeout", code, errs)
	}
}

func TestReachable(t *testing.T) {
	for host, want := range map[string]string{
		"0.0.0.0": "127.0.0.1", "::": "::1", "127.0.0.1": "127.0.0.1", "10.0.0.7": "10.0.0.7", "localhost": "localhost",
	} {
		if got := reachable(host); got != want {
			t.Errorf("a sidecar on %s is asked at %s, want %s", host, got, want)
		}
	}
}
