package sidecar

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// greeting is what a client of HTTP/2 sends first: its preface, and settings that are empty.
const greeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greeted connects as a client that makes no call. Its greeting is lost where the connection is refused.
func greeted(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial(network, address))(t)
	t.Cleanup(func() { conn.Close() })
	_, _ = conn.Write([]byte(greeting))
	return conn
}

// openConnections is nil when a sidecar has that many connections over gRPC.
func openConnections(r *running, want int64) func() error {
	return func() error {
		if got := r.serving.clients.Stats().Open["grpc"]; got != want {
			return fmt.Errorf("%d connections are open, want %d", got, want)
		}
		return nil
	}
}

// expectCut waits until the other side has closed a connection.
func expectCut(t *testing.T, conn net.Conn) {
	t.Helper()
	must.Do(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.Copy(io.Discard, conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a connection beyond the bound is still open")
	}
}

// tight starts a sidecar whose connections may take least.
func tight(t *testing.T, environ ...string) *running {
	t.Helper()
	limit := debug.SetMemoryLimit(32 << 20) // what the runtime reads from GOMEMLIMIT
	defer debug.SetMemoryLimit(limit)
	return begin(t, twoPerYear, append(environ, "GOMEMLIMIT=32MiB")...)
}

// tightConnections is how many fit: what each has sent takes a few bytes, too.
const tightConnections = leastPeers/grpcBytes - 1

// TestTheConnectionThatIsIdleLongestMakesRoom fills a sidecar with connections: those that got no answer go first, and
// the one with answers stays.
func TestTheConnectionThatIsIdleLongestMakesRoom(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	r := tight(t, "GRPC_UDS="+socket)
	address := r.Addresses().GRPC
	first := dial(t, address)
	expectCodes(t, first, "alice", codeOK)
	oldest := greeted(t, "tcp", address)
	servers.Await(t, "the oldest connection", openConnections(r, 2))
	for range tightConnections - 2 {
		greeted(t, "tcp", address)
	}
	servers.Await(t, "all connections", openConnections(r, tightConnections))
	expectCodes(t, dial(t, socket, unixDial(socket)...), "bob", codeOK) // of another address, and so is its place
	expectCut(t, oldest)
	expectCodes(t, first, "alice", codeOK)
	expectPage(t, r.Addresses().Debug, "/metrics", 200, `spillway_connections_closed_total{reason="room"} `)
	expectPage(t, r.Addresses().HTTP, "/readyz", 200, "degraded: connections: some were closed to make room")
	r.awaitLog(t, "a connection was closed")
}

// TestHTTPPortsHaveBounds fills each port over HTTP: the oldest connection makes room, and the next request is
// answered.
func TestHTTPPortsHaveBounds(t *testing.T) {
	r := begin(t, twoPerYear, "USE_PROMETHEUS=true")
	a := r.Addresses()
	for _, port := range []struct {
		name, address, page string
		most                int
	}{
		{"http", a.HTTP, "/livez", jsonConns},
		{"debug", a.Debug, "/stats", debugConns},
		{"metrics", a.Metrics, "/metrics", metricsConns},
	} {
		oldest := slow(t, port.address)
		servers.Await(t, "the oldest connection", func() error {
			if r.serving.clients.Stats().Open[port.name] == 0 {
				return errors.New("it is not open")
			}
			return nil
		})
		for range port.most {
			slow(t, port.address)
		}
		expectCut(t, oldest)
		expectPage(t, port.address, port.page, 200, "")
		if open := r.serving.clients.Stats().Open[port.name]; open > int64(port.most) {
			t.Errorf("%s has %d connections, want at most %d", port.name, open, port.most)
		}
	}
}

// slow connects to a port over HTTP and begins a request.
func slow(t *testing.T, address string) net.Conn {
	t.Helper()
	conn := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { conn.Close() })
	_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n"))
	return conn
}

// TestHeadersHaveBounds sends a header of 20 KiB, which the ports for probes and metrics refuse and the others take.
func TestHeadersHaveBounds(t *testing.T) {
	r := begin(t, twoPerYear, "USE_PROMETHEUS=true")
	a := r.Addresses()
	client := browser()
	for url, want := range map[string]int{a.HTTP + "/livez": 431, a.Metrics + "/metrics": 431,
		a.Debug + "/stats": 200} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+url, nil))(t)
		request.Header.Set("X-Long", strings.Repeat("a", 20<<10))
		answer := must.Get(client.Do(request))(t)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s with a header of 20 KiB = %d, want %d", url, answer.StatusCode, want)
		}
	}
}

// gRPC waits for the greeting of each new connection before it sends the others elsewhere.
func TestASilentConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	r := begin(t, twoPerYear)
	expectCodes(t, dial(t, r.Addresses().GRPC), "alice", codeOK)
	silent := must.Get(net.Dial("tcp", r.Addresses().GRPC))(t)
	defer silent.Close()
	servers.Await(t, "both connections", openConnections(r, 2))
	r.halt(t)
	if r.logs(cutOff) == nil {
		t.Error("a connection without a greeting let the end of the sidecar cut off the others")
	}
	if held := r.serving.clients.Stats(); held.Open["grpc"] != 0 || held.Bytes != 0 {
		t.Errorf("%+v after the end, want that nothing is held", held)
	}
}
