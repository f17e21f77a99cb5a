package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// wire is a connection that makes calls. It speaks as much of HTTP/2 as they need, so that the load generator takes
// little of the processors that it shares with the servers. Like a worker of Envoy it reads what has come, and writes
// at once all that follows from it.
type wire struct {
	conn net.Conn
	end  time.Time // a run that hangs ends
	in   []byte    // read and not taken yet

	mu     sync.Mutex
	out    []byte // to be written
	window int64  // bytes of requests that the server takes before it sends a window update
	most   int    // calls at once that the server takes
	got    int64  // bytes of answers since the last window update to the server
	calls  map[uint32]call
	last   uint32 // stream of the last call
	tally  tally
	blocks blocks
	first  []byte // header block of the first call
	next   []byte // and of all others
}

// call waits for its answer.
type call struct {
	from   time.Time // its latency counts from here
	body   []byte    // of an answer in pieces
	code   uint64
	answer bool // has come as a whole
}

// Sizes and numbers of HTTP/2.
const (
	frameHead   = 9
	grpcHead    = 5       // of a message: a flag and its length
	roomFor     = 1 << 30 // bytes of answers that the server may send
	longest     = 1 << 20 // frame that is read
	firstWindow = 65535
)

// dialWire connects to a server. The client's preface leaves with the first flush.
func dialWire(ctx context.Context, target string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	err = conn.SetDeadline(end)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, end: end, window: firstWindow, most: inFlightOfWire, calls: map[uint32]call{},
		blocks: newBlocks()}
	w.first, w.next = requestHeaders(target)
	w.out = append(w.out, http2.ClientPreface...)
	w.out = appendFrame(w.out, http2.FrameSettings, 0, 0, setting(http2.SettingEnablePush, 0),
		setting(http2.SettingInitialWindowSize, roomFor))
	w.out = appendFrame(w.out, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, roomFor))
	return w, nil
}

// inFlightOfWire is how many calls of an open loop may be in flight on a connection. Further ones wait, and their
// latency counts from when they were due.
const inFlightOfWire = 128

func setting(id http2.SettingID, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, uint16(id)), value)
}

// requestHeaders are the header blocks of the first call and of those after it, which refer to the first. A
// grpc-timeout makes a server set a timer, as for Envoy's calls; it never runs out.
func requestHeaders(target string) (first, next []byte) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for range 2 {
		first = next
		b.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
			{Name: ":authority", Value: target},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
			{Name: "grpc-timeout", Value: "200000m"},
		} {
			_ = e.WriteField(f) // a buffer takes everything
		}
		next = bytes.Clone(b.Bytes())
	}
	return first, next
}

// appendFrame appends a frame whose payload comes in pieces.
func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload ...[]byte) []byte {
	size := 0
	for _, p := range payload {
		size += len(p)
	}
	b = append(b, byte(size>>16), byte(size>>8), byte(size), byte(kind), byte(flags))
	b = binary.BigEndian.AppendUint32(b, stream)
	for _, p := range payload {
		b = append(b, p...)
	}
	return b
}

// begin begins a call, whose request goes out with the next flush. Its latency counts from the given time.
func (w *wire) begin(request []byte, from time.Time) {
	block := w.next
	if w.last == 0 {
		w.last, block = ^uint32(0), w.first // the first stream is 1
	}
	w.last += 2
	w.calls[w.last] = call{from: from}
	w.window -= int64(grpcHead + len(request))
	w.out = appendFrame(w.out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, w.last, block)
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request)))
	w.out = appendFrame(w.out, http2.FrameData, http2.FlagDataEndStream, w.last, head, request)
}

// flush writes what waits.
func (w *wire) flush() error {
	if w.window < 0 {
		return errors.New("the server takes no more requests")
	}
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.conn.Write(w.out)
	w.out = w.out[:0]
	return err
}

// follow reads answers until there is nothing more to do. After each read, and at first, refill begins further calls
// and reports whether there may be more of them. What goes wrong fails all calls in flight.
func (w *wire) follow(ctx context.Context, refill func(now time.Time) (more bool)) {
	for {
		w.mu.Lock()
		more := refill(time.Now())
		err := w.flush()
		idle := len(w.calls) == 0
		w.mu.Unlock()
		if err == nil && idle && !more {
			return
		}
		if err == nil {
			err = w.receive()
		}
		if err == nil {
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if !errors.Is(ctx.Err(), context.Canceled) {
			w.tally.fail(max(1, len(w.calls)), err.Error())
		}
		clear(w.calls)
		return
	}
}

// receive waits for bytes of the server and handles them.
func (w *wire) receive() error {
	const step = 64 << 10
	if cap(w.in)-len(w.in) < step {
		w.in = append(make([]byte, 0, 2*len(w.in)+2*step), w.in...)
	}
	n, err := w.conn.Read(w.in[len(w.in):cap(w.in)])
	if errors.Is(err, os.ErrDeadlineExceeded) && w.woken() {
		return nil
	}
	if err != nil {
		return err
	}
	w.in = w.in[:len(w.in)+n]
	w.mu.Lock()
	defer w.mu.Unlock()
	rest, err := w.parseFrames(w.in, time.Now())
	w.in = w.in[:copy(w.in, rest)]
	return err
}

// wake ends a read that waits for nothing.
func (w *wire) wake() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) }

// woken lets reads wait again, and reports whether none of them has to: no call waits for an answer.
func (w *wire) woken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls) == 0 && w.conn.SetReadDeadline(w.end) == nil
}
