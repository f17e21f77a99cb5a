//go:build full

package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// residentMost is how much memory a sidecar with manifestMemory may have resident while one peer does its worst.
const residentMost = 200 << 20

// peersRules decide what the peers of these tests ask.
const peersRules = `
domain: hostile
descriptors:
  - {key: path, rate_limit: {unit: day, requests_per_unit: 1000000}}
`

// assault is what one peer does to one port.
type assault struct {
	name  string
	port  func(*servers.Sidecar, string) string
	conns int
	send  func(conn net.Conn) error // all that it sends on one connection, which it then keeps
}

func gRPC(s *servers.Sidecar, _ string) string              { return s.GRPC }
func jsonPort(s *servers.Sidecar, _ string) string          { return s.HTTP }
func debugPort(s *servers.Sidecar, _ string) string         { return s.Debug }
func metricsPort(_ *servers.Sidecar, metrics string) string { return metrics }

var assaults = []assault{
	{"long headers at the metrics", metricsPort, 4000, longHeader(60_000)},
	{"short headers at the metrics", metricsPort, 8000, longHeader(10)},
	{"metrics that it does not read", metricsPort, 500, pipelined("/metrics")},
	{"long headers at /json", jsonPort, 4000, longHeader(60_000)},
	{"long bodies at /json", jsonPort, 1000, longBody},
	{"long headers at the debug port", debugPort, 4000, longHeader(60_000)},
	{"header blocks that unpack, one connection", gRPC, 1, callsOf(1000, unpacking, nil)},
	{"header blocks that unpack, many connections", gRPC, 900, callsOf(20, unpacking, nil)},
	{"header blocks without an end", gRPC, 3000, endless},
	{"long messages without an end, one connection", gRPC, 1, callsOf(80, plain, unfinished(4<<20))},
	{"long messages without an end, many connections", gRPC, 100, callsOf(80, plain, unfinished(4<<20))},
	{"messages without an end in frames of one byte", gRPC, 20, callsOf(50, plain, crumbs)},
	{"answers that it does not take", gRPC, 20, untaken},
	{"connections that do nothing", gRPC, 3000, callsOf(0, nil, nil)},
}

// TestOnePeerAtItsWorst: a sidecar of 256 MiB lives through each of them, within its memory, and answers another peer
// meanwhile.
func TestOnePeerAtItsWorst(t *testing.T) {
	for _, a := range assaults {
		t.Run(a.name, func(t *testing.T) {
			metrics := servers.FreeAddr(t)
			env := append(peersEnv(t), "USE_PROMETHEUS=true", "PROMETHEUS_ADDR="+metrics)
			s := servers.StartSidecarWithin(t, manifestMemory, env...)
			other := dial(t, s.GRPC)
			other.expectDecision(t)
			a.run(t, a.port(s, metrics))
			for range 5 {
				other.expectDecision(t)
				dial(t, s.GRPC).expectDecision(t)
			}
			most, err := s.PeakMemory()
			if err != nil {
				t.Fatalf("%v\n%s", err, s.Output())
			}
			t.Logf("at most %d MiB resident", most>>20)
			if most > residentMost {
				t.Errorf("the sidecar had %d MiB resident, want at most %d", most>>20, residentMost>>20)
			}
		})
	}
}

// run does it, and keeps the connections until the test ends.
func (a assault) run(t *testing.T, address string) {
	t.Helper()
	var all sync.WaitGroup
	room := make(chan struct{}, 64)
	for range a.conns {
		room <- struct{}{}
		conn, err := net.DialTimeout("tcp", address, deadline)
		if err != nil {
			<-room
			continue // refused, which is as good
		}
		t.Cleanup(func() { conn.Close() })
		all.Go(func() {
			defer func() { <-room }()
			_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
			_ = a.send(conn) // an error is a connection that was closed, or one that is not read any more
		})
	}
	all.Wait()
}

// expectDecision asks once.
func (c *caller) expectDecision(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	_, err := c.client.ShouldRateLimit(ctx, paths("hostile", 1))
	if err != nil {
		t.Errorf("no decision for another peer: %v", err)
	}
}

// peersEnv is hostileEnv without Redis.
func peersEnv(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(folder, "hostile.yaml"), []byte(peersRules), 0o600))
	return []string{"RULES=" + folder}
}

// longHeader is a request of HTTP/1 that ends in the middle of its header.
func longHeader(size int) func(net.Conn) error {
	return func(conn net.Conn) error {
		_, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "+strings.Repeat("a", size))
		return err
	}
}

// longBody is a request to /json whose body lacks its last byte.
func longBody(conn net.Conn) error {
	const size = 1 << 20
	const head = "POST /json HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%s"
	_, err := fmt.Fprintf(conn, head, size, strings.Repeat(" ", size-1))
	return err
}

// pipelined are requests whose answers the client does not read.
func pipelined(path string) func(net.Conn) error {
	return func(conn net.Conn) error {
		_, err := io.WriteString(conn, strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 50))
		return err
	}
}

// client is one connection of HTTP/2.
type client struct {
	*http2.Framer
	conn net.Conn
	out  bytes.Buffer
}

// greet begins a connection and reads what comes, for as long as it lasts.
func greet(conn net.Conn, settings ...http2.Setting) *client {
	c := &client{conn: conn}
	c.Framer = http2.NewFramer(&c.out, nil)
	c.out.WriteString(http2.ClientPreface)
	_ = c.WriteSettings(settings...) // into memory
	_ = c.WriteSettingsAck()
	return c
}

// flush sends what was written so far.
func (c *client) flush() error {
	_, err := c.conn.Write(c.out.Bytes())
	c.out.Reset()
	return err
}

// awaitWindow reads frames until the server has opened a window of that many streams, or some time has passed.
func (c *client) awaitWindow(streams int) error {
	in := http2.NewFramer(io.Discard, c.conn)
	for seen := 0; seen < streams; {
		frame, err := in.ReadFrame()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if update, ok := frame.(*http2.WindowUpdateFrame); ok && update.StreamID != 0 {
			seen++
		}
	}
	return nil
}

var callFields = []hpack.HeaderField{
	{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a"},
	{Name: ":path", Value: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
	{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
}

// plain is the header block of a call.
func plain() []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range callFields {
		_ = e.WriteField(f) // into memory
	}
	return block.Bytes()
}

// unpacking is a header block of some 2,000 fields in one byte each, which is what 64 KiB allow.
func unpacking() []byte {
	block := plain()
	for range 1800 {
		block = append(block, 0x80|32) // cookie, without a value
	}
	return block
}

// callsOf begins that many calls on a connection and does something on each. With a count of 0 it only greets.
func callsOf(count int, block func() []byte, each func(*client, uint32) error) func(net.Conn) error {
	return func(conn net.Conn) error {
		c := greet(conn)
		for i := range count {
			err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block(),
				EndHeaders: true})
			if err != nil {
				return err
			}
		}
		if each != nil {
			for i := range count {
				err := each(c, uint32(2*i+1))
				if err != nil {
					return err
				}
			}
		}
		return c.flush()
	}
}

// unfinished sends a message but for its last byte, as far as the server lets it.
func unfinished(size int) func(*client, uint32) error {
	return func(c *client, stream uint32) error {
		if stream == 1 {
			err := c.announce(size)
			if err != nil {
				return err
			}
		}
		for sent := 5; sent < size-1; {
			n := min(16<<10, size-1-sent)
			err := c.WriteData(stream, false, make([]byte, n))
			if err == nil {
				err = c.flush()
			}
			if err != nil {
				return err
			}
			sent += n
		}
		return nil
	}
}

// announce sends the length of the message of each of 80 calls, and waits until the server allows that much.
func (c *client) announce(size int) error {
	for i := range 80 {
		err := c.WriteData(uint32(2*i+1), false, []byte{0, byte(size >> 24), byte(size >> 16), byte(size >> 8),
			byte(size)})
		if err != nil {
			return err
		}
	}
	err := c.flush()
	if err != nil {
		return err
	}
	err = c.awaitWindow(80)
	go func() { _, _ = io.Copy(io.Discard, c.conn) }() // ends with the connection
	return err
}

// crumbs sends 60,000 bytes in as many frames.
func crumbs(c *client, stream uint32) error {
	_ = c.WriteData(stream, false, []byte{0, 0, 1, 0, 0})
	for range 60_000 {
		_ = c.WriteData(stream, false, []byte{0}) // into memory
	}
	return c.flush()
}

// endless begins a header block and does not end it.
func endless(conn net.Conn) error {
	c := greet(conn)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: unpacking()})
	return c.flush()
}

// untaken are calls with long answers, for which the client opens no window.
func untaken(conn net.Conn) error {
	c := greet(conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	message, err := proto.Marshal(paths("hostile", 3000))
	if err != nil {
		return err
	}
	message = append([]byte{0, 0, byte(len(message) >> 16), byte(len(message) >> 8), byte(len(message))}, message...)
	for i := range 100 {
		stream := uint32(2*i + 1)
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: plain(), EndHeaders: true})
		for rest := message; len(rest) > 0; {
			n := min(16<<10, len(rest))
			_ = c.WriteData(stream, n == len(rest), rest[:n])
			rest = rest[n:]
		}
		err := c.flush()
		if err != nil {
			return err
		}
	}
	return nil
}
