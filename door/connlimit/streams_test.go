package connlimit

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/net/http2"
)

// wire is what one side of a connection sends.
func wire(greeting string, send func(*http2.Framer)) []byte {
	var out bytes.Buffer
	out.WriteString(greeting)
	send(http2.NewFramer(&out, nil))
	return out.Bytes()
}

// headers begins a call.
func headers(f *http2.Framer, id uint32, ends, whole bool) {
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: make([]byte, 100), EndStream: ends,
		EndHeaders: whole})
}

func begins(id uint32, ends, whole bool) func(*http2.Framer) {
	return func(f *http2.Framer) { headers(f, id, ends, whole) }
}

func continues(whole bool, size int) func(*http2.Framer) {
	return func(f *http2.Framer) { _ = f.WriteContinuation(1, whole, make([]byte, size)) }
}

func data(ends bool) func(*http2.Framer) {
	return func(f *http2.Framer) { _ = f.WriteData(1, ends, make([]byte, 50)) }
}

func breaks(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeCancel) }

// step is frames of one side, and what the streams hold then.
type step struct {
	name       string
	server     bool
	send       func(*http2.Framer)
	open       int
	unfinished int64
	held       int64 // beside what the longest frame takes
	answered   bool
}

// String is what the streams hold.
func (s step) String() string {
	return fmt.Sprintf("%d open, %d bytes unfinished and %d held, answered %v", s.open, s.unfinished, s.held,
		s.answered)
}

const (
	askingBytes    = streamBytes + readerBytes + 100*headerFactor
	answeringBytes = streamBytes + 100*headerFactor
)

var calls = map[string][]step{
	"a call": {
		{name: "headers", send: begins(1, false, true), open: 1, held: askingBytes},
		{name: "half a message", send: data(false), open: 1, unfinished: 50 + dataBytes,
			held: askingBytes + 50 + dataBytes},
		{name: "the other half", send: data(true), open: 1, held: streamBytes},
		{name: "headers of the answer", server: true, send: begins(1, false, true), open: 1, held: answeringBytes},
		{name: "the answer", server: true, send: data(false), open: 1, held: answeringBytes},
		{name: "trailers", server: true, send: begins(1, true, true), answered: true},
	},
	"a header block in parts": {
		{name: "the first part", send: begins(1, true, false), open: 1, held: askingBytes},
		{name: "the second", send: continues(false, 100), open: 1, held: askingBytes + 100*headerFactor},
		{name: "the last", send: continues(true, 0), open: 1, held: streamBytes},
	},
	"a call that the client breaks off": {
		{name: "headers", send: begins(1, false, true), open: 1, held: askingBytes},
		{name: "of another", send: begins(3, true, true), open: 2, held: askingBytes + streamBytes},
		{name: "the end of one", send: breaks, open: 1, held: streamBytes},
		{name: "frames of no call", send: data(false), open: 1, held: streamBytes},
	},
	"a call that the server breaks off": {
		{name: "headers", send: begins(1, false, true), open: 1, held: askingBytes},
		{name: "its end", server: true, send: breaks},
	},
}

// TestAStreamHoldsWhatItsPhaseTakes follows calls, however the bytes are cut.
func TestAStreamHoldsWhatItsPhaseTakes(t *testing.T) {
	for name, steps := range calls {
		for _, chunk := range []int{1, 7, 1 << 20} {
			s := new(streams)
			s.in.rest = preface
			s.received([]byte(http2.ClientPreface), 0)
			for _, step := range steps {
				answered := s.take(step, chunk)
				held := s.held - s.largest
				got := step
				got.open, got.unfinished, got.held, got.answered = len(s.open), s.unfinished, held, answered
				if got.String() != step.String() {
					t.Errorf("%s, %s, in parts of %d bytes: %v, want %v", name, step.name, chunk, got, step)
				}
			}
		}
	}
}

// take follows the frames of a step in parts, and reports whether a call was answered.
func (s *streams) take(step step, chunk int) (answered bool) {
	sent := wire("", step.send)
	for len(sent) > 0 {
		n := min(chunk, len(sent))
		if step.server {
			answered = s.sent(sent[:n]) || answered
		} else {
			s.received(sent[:n], 0)
		}
		sent = sent[n:]
	}
	return answered
}

// FuzzStreams: for any bytes of both sides, nothing is held below zero, and nothing once all streams are closed.
func FuzzStreams(f *testing.F) {
	f.Add(wire(http2.ClientPreface, begins(1, true, true)), wire("", begins(1, true, true)))
	f.Fuzz(func(t *testing.T, in, out []byte) {
		s := new(streams)
		s.in.rest = preface
		s.received(in, 0)
		s.sent(out)
		for len(s.open) > 0 {
			s.drop(0)
		}
		if s.held != s.largest || s.unfinished != 0 {
			t.Errorf("%d held and %d unfinished without a stream, want %d and 0", s.held, s.unfinished, s.largest)
		}
	})
}
