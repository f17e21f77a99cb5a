package sidecar

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/servers"
)

// greeting is what a client of HTTP/2 sends first: its preface, and settings that are empty.
const greeting = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// greeted connects as a client that makes no call. Its greeting is lost where the connection is refused.
func greeted(t *testing.T, network, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_, _ = conn.Write([]byte(greeting))
	return conn
}

// openConnections is nil when a sidecar has that many connections.
func openConnections(r *running, want int64) func() error {
	return func() error {
		if got := r.clients.open.Load(); got != want {
			return fmt.Errorf("%d connections are open, want %d", got, want)
		}
		return nil
	}
}

// expectCut waits until the other side has closed a connection.
func expectCut(t *testing.T, conn net.Conn) {
	t.Helper()
	err := conn.SetReadDeadline(time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection beyond the bound read %d bytes, %v; want that it is closed", n, err)
	}
}

func TestConnectionsBeyondTheBoundAreRefused(t *testing.T) {
	limit := debug.SetMemoryLimit(64 << 20) // stands for what the runtime read from GOMEMLIMIT
	socket := filepath.Join(t.TempDir(), "s")
	r := begin(t, twoPerYear, "GOMEMLIMIT=64MiB", "GRPC_UDS="+socket)
	debug.SetMemoryLimit(limit)
	address := r.Addresses().GRPC
	first := dial(t, address)
	expectCodes(t, first, "alice", codeOK)
	var one net.Conn
	for i := range leastConnections - 1 {
		if i%2 == 0 {
			one = greeted(t, "tcp", address)
		} else {
			greeted(t, "unix", socket)
		}
	}
	servers.Await(t, "all connections", openConnections(r, leastConnections))
	expectCut(t, greeted(t, "tcp", address))
	expectCut(t, greeted(t, "unix", socket))
	expectPage(t, r.Addresses().Debug, "/metrics", 200, "spillway_connections_refused_total 2")
	r.awaitLog(t, "connections refused")
	expectCodes(t, first, "bob", codeOK)

	one.Close()
	servers.Await(t, "room", openConnections(r, leastConnections-1))
	expectCodes(t, dial(t, address), "carol", codeOK)
}

// gRPC waits for the greeting of each new connection before it tells the others to go elsewhere.
func TestASilentConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	r := begin(t, twoPerYear)
	expectCodes(t, dial(t, r.Addresses().GRPC), "alice", codeOK)
	silent, err := net.Dial("tcp", r.Addresses().GRPC)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	servers.Await(t, "both connections", openConnections(r, 2))
	r.halt(t)
	if r.logs(cutOff) == nil {
		t.Error("a connection without a greeting let the end of the sidecar cut off the others")
	}
	if n := len(r.clients.silent); n != 0 || r.clients.open.Load() != 0 {
		t.Errorf("%d connections are open and %d of them silent after the end, want none", r.clients.open.Load(), n)
	}
}
