package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

var teapot = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })

var loopback, podNetwork = net.IPv4(127, 0, 0, 1), net.IPv4(10, 1, 2, 3)

// asking is a request to a port at an address, under a name.
func asking(at net.IP, host, path string, header ...string) *http.Request {
	ctx := context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: at, Port: 6070}))
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// linked is a request for the live page, as another page makes it.
func linked(as string) *http.Request {
	return asking(loopback, "localhost:6070", "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", as)
}

// TestWhichPagesAreAnswered: a page of another origin gets nothing, and neither does one whose name was made to lead
// to this machine. Prometheus and probes reach a pod under any name.
func TestWhichPagesAreAnswered(t *testing.T) {
	for _, c := range []struct {
		name          string
		r             *http.Request
		own, programs int
	}{
		{"curl", asking(loopback, "127.0.0.1:6070", "/stats"), 418, 418},
		{"curl, IPv6", asking(net.IPv6loopback, "[::1]:6070", "/stats"), 418, 418},
		{"localhost", asking(loopback, "LOCALHOST:6070", "/stats"), 418, 418},
		{"a configured name", asking(loopback, "sidecar.local:6070", "/stats"), 418, 418},
		{"Prometheus by the name of a pod", asking(podNetwork, "spillway.ns.svc.cluster.local:9090", "/metrics"), 418,
			418},
		{"the kubelet", asking(podNetwork, "10.1.2.3:8080", "/livez"), 418, 418},
		{"Envoy on loopback, by the name of a cluster", asking(loopback, "ratelimit", "/json"), 403, 418},
		{"a name that was made to lead here", asking(loopback, "evil.example", "/rlconfig"), 403, 418},
		{"with an origin, too", asking(loopback, "evil.example", "/json", "Origin", "http://evil.example"), 403, 403},
		{"without a name", asking(loopback, "", "/stats"), 403, 418},
		{"another page", asking(loopback, "localhost:6070", "/stats", "Sec-Fetch-Site", "cross-site"), 403, 403},
		{"a page of the same site", asking(loopback, "localhost:6070", "/stats", "Sec-Fetch-Site", "same-site"), 403,
			403},
		{"another origin", asking(podNetwork, "10.1.2.3:6070", "/stats", "Origin", "http://evil.example"), 403, 403},
		{"no origin", asking(podNetwork, "10.1.2.3:6070", "/stats", "Origin", "null"), 403, 403},
		{"the live page", asking(loopback, "localhost:6070", "/v1/top", "Sec-Fetch-Site", "same-origin"), 418, 418},
		{"a change by the live page", asking(loopback, "localhost", "/v1/tier", "Origin", "http://localhost"), 418,
			403},
		{"a link to the live page", linked("document"), 418, 403},
		{"a frame of the live page", linked("iframe"), 403, 403},
	} {
		for name, h := range map[string]http.Handler{"own": ForOwnPages(teapot, "sidecar.local"),
			"programs": ForPrograms(teapot)} {
			want := map[string]int{"own": c.own, "programs": c.programs}[name]
			w := httptest.NewRecorder()
			h.ServeHTTP(w, c.r)
			if w.Code != want {
				t.Errorf("%s on a port for %s: %d, want %d", c.name, name, w.Code, want)
			}
		}
	}
}
