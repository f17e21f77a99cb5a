package sidecar

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// manyUsers is a request whose answer has some 20 KiB, as gRPC sends it.
func manyUsers(t *testing.T) []byte {
	t.Helper()
	request := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for i := range 500 {
		entries := []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(i)}}
		request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{Entries: entries})
	}
	wire := must.Get(proto.Marshal(request))(t)
	size := len(wire)
	return append([]byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, wire...)
}

// call begins a call on a connection whose client takes no answer, and sends this of its message.
func call(t *testing.T, conn net.Conn, message []byte, ends bool) {
	t.Helper()
	var out, block bytes.Buffer
	fields := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
		{Name: ":path", Value: "/" + rateLimitService + "/ShouldRateLimit"},
		{Name: "content-type", Value: "application/grpc"},
	} {
		_ = fields.WriteField(field) // into memory
	}
	out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&out, nil)
	_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = f.WriteData(1, ends, message)
	must.Get(conn.Write(out.Bytes()))(t)
	go func() { _, _ = io.Copy(io.Discard, conn) }() // until the connection is closed
}

// TestWhatAPeerHoldsIsCounted leaves a message unfinished, and then an answer untaken, on each kind of connection.
func TestWhatAPeerHoldsIsCounted(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t, "server", 2)
	socket := filepath.Join(t.TempDir(), "s")
	plain := begin(t, twoPerYear, "GRPC_UDS="+socket)
	secure := begin(t, twoPerYear, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+cert, "GRPC_SERVER_TLS_KEY="+key)
	message := manyUsers(t)
	for _, c := range []struct {
		name   string
		s      *running
		idle   int64
		dialed func() (net.Conn, error)
	}{
		{"TCP", plain, grpcBytes, func() (net.Conn, error) { return net.Dial("tcp", plain.Addresses().GRPC) }},
		{"a Unix socket", plain, grpcBytes, func() (net.Conn, error) { return net.Dial("unix", socket) }},
		{"TLS", secure, grpcBytes + tlsBytes, func() (net.Conn, error) {
			cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
			return tls.Dial("tcp", secure.Addresses().GRPC, cfg)
		}},
	} {
		unfinished, untaken := len(message)-1, len(message)
		for what, sent := range map[string]int{"an unfinished message": unfinished, "an untaken answer": untaken} {
			conn, err := c.dialed()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			call(t, conn, message[:sent], sent == len(message))
			servers.Await(t, c.name+": "+what, func() error {
				if held := c.s.serving.clients.Stats().Bytes; held < c.idle+int64(len(message))*9/10 {
					return fmt.Errorf("%d bytes are held, want those of a connection and of %d bytes more", held,
						len(message))
				}
				return nil
			})
			conn.Close()
			servers.Await(t, "the end of the connection", func() error {
				if held := c.s.serving.clients.Stats().Bytes; held != 0 {
					return fmt.Errorf("%d bytes are held", held)
				}
				return nil
			})
		}
	}
}
