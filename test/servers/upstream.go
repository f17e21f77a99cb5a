package servers

import (
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// Upstream is the application behind Envoy: it answers 200 to everything, over HTTP/1 and unencrypted HTTP/2.
type Upstream struct {
	Addr string
	hits atomic.Int64
}

// StartUpstream starts an application and stops it when the test ends. It answers with the request's path, with the
// target as it came in x-seen-target, and with what the request's x-echo-* headers ask for as headers of the response
// (x-echo-tokens: 5 becomes tokens: 5). gRPC callers get an empty answer with grpc-status 0.
func StartUpstream(t testing.TB) *Upstream {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen for the application: %v", err)
	}
	u := &Upstream{Addr: listener.Addr().String()}
	server := &http.Server{Handler: http.HandlerFunc(u.serve), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Close()
		<-stopped
	})
	return u
}

// Hits is how many requests reached the application.
func (u *Upstream) Hits() int64 { return u.hits.Load() }

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	u.hits.Add(1)
	const echo = "X-Echo-"
	for name, values := range r.Header {
		if len(name) > len(echo) && name[:len(echo)] == echo {
			w.Header().Set(name[len(echo):], values[0])
		}
	}
	if r.Header.Get("Content-Type") == "application/grpc" {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(http.StatusOK)
		w.Header().Set("Grpc-Status", "0")
		return
	}
	w.Header().Set("X-Seen-Target", r.RequestURI)
	io.WriteString(w, r.URL.Path)
}
