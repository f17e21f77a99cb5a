package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// parseFrames takes the frames that are there as a whole, and returns what is left.
func (w *wire) parseFrames(in []byte, now time.Time) (rest []byte, err error) {
	for len(in) >= frameHead {
		size := int(in[0])<<16 | int(in[1])<<8 | int(in[2])
		if size > longest {
			return in, fmt.Errorf("the server sent a frame of %d bytes", size)
		}
		if len(in) < frameHead+size {
			break
		}
		head := http2.FrameHeader{Type: http2.FrameType(in[3]), Flags: http2.Flags(in[4]),
			StreamID: binary.BigEndian.Uint32(in[5:]) &^ (1 << 31)}
		err = w.frame(head, in[frameHead:frameHead+size], now)
		if err != nil {
			return in, err
		}
		in = in[frameHead+size:]
	}
	return in, nil
}

// frame takes one frame.
func (w *wire) frame(head http2.FrameHeader, payload []byte, now time.Time) error {
	switch head.Type {
	case http2.FrameData:
		return w.data(head, payload)
	case http2.FrameHeaders:
		return w.headers(head, payload, now)
	case http2.FrameSettings:
		return w.settings(head, payload)
	case http2.FramePing:
		if !head.Flags.Has(http2.FlagPingAck) {
			w.out = appendFrame(w.out, http2.FramePing, http2.FlagPingAck, 0, payload)
		}
	case http2.FrameWindowUpdate:
		if head.StreamID == 0 && len(payload) == 4 {
			w.window += int64(binary.BigEndian.Uint32(payload))
		}
	case http2.FrameRSTStream:
		return w.reset(head.StreamID, now)
	default:
		return fmt.Errorf("the server sent a frame %v: %q", head.Type, payload)
	}
	return nil
}

// reset counts a call whose stream the server ended. It may also end one that it has answered.
func (w *wire) reset(stream uint32, now time.Time) error {
	if _, open := w.calls[stream]; !open {
		return nil
	}
	return w.done(stream, now, "the server ended a stream")
}

// settings takes those of the server.
func (w *wire) settings(head http2.FrameHeader, payload []byte) error {
	if head.Flags.Has(http2.FlagSettingsAck) {
		return nil
	}
	for ; len(payload) >= 6; payload = payload[6:] {
		value := binary.BigEndian.Uint32(payload[2:])
		if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingMaxConcurrentStreams {
			w.most = int(min(value, inFlightOfWire))
		}
	}
	w.out = appendFrame(w.out, http2.FrameSettings, http2.FlagSettingsAck, 0)
	return nil
}

// data takes a part of an answer, mostly all of it.
func (w *wire) data(head http2.FrameHeader, payload []byte) error {
	if head.Flags.Has(http2.FlagDataPadded) {
		return errors.New("the server pads its answers")
	}
	w.got += int64(len(payload))
	if w.got > roomFor/2 {
		w.out = appendFrame(w.out, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(w.got)))
		w.got = 0
	}
	c, found := w.calls[head.StreamID]
	if !found {
		return fmt.Errorf("an answer on stream %d, where no call waits", head.StreamID)
	}
	body := payload
	if len(c.body) > 0 {
		body = append(c.body, payload...)
	}
	if len(body) < grpcHead || len(body) < grpcHead+int(binary.BigEndian.Uint32(body[1:])) {
		c.body = bytes.Clone(body)
	} else {
		c.answer, c.code = true, codeOf(body[grpcHead:])
	}
	w.calls[head.StreamID] = c
	return nil
}

// headers takes those before an answer or after it.
func (w *wire) headers(head http2.FrameHeader, payload []byte, now time.Time) error {
	if head.Flags.Has(http2.FlagHeadersPadded) || head.Flags.Has(http2.FlagHeadersPriority) ||
		!head.Flags.Has(http2.FlagHeadersEndHeaders) {
		return errors.New("the server sends headers in an unusual way")
	}
	fault, err := w.blocks.fault(payload)
	if err != nil {
		return fmt.Errorf("the headers of an answer: %w", err)
	}
	if !head.Flags.Has(http2.FlagHeadersEndStream) {
		return nil
	}
	return w.done(head.StreamID, now, fault)
}

// done counts a call whose stream has ended.
func (w *wire) done(stream uint32, now time.Time, fault string) error {
	c, found := w.calls[stream]
	if !found {
		return fmt.Errorf("stream %d ends, where no call waits", stream)
	}
	delete(w.calls, stream)
	switch {
	case fault != "":
		w.tally.fail(1, fault)
	case !c.answer:
		w.tally.fail(1, "the server sent no answer")
	case c.code != admitted && c.code != refused:
		w.tally.fail(1, fmt.Sprintf("an answer with overall_code %d", c.code))
	default:
		w.tally.latencies = append(w.tally.latencies, int64(now.Sub(c.from)))
		if c.code == refused {
			w.tally.refused++
		}
	}
	return nil
}

// blocks decodes header blocks. Nearly all of them are the same few bytes, and these mean the same as long as no other
// has changed the table that they refer to.
type blocks struct {
	decoder *hpack.Decoder
	sound   map[string]bool // blocks that are in order and change nothing
}

func newBlocks() blocks {
	return blocks{decoder: hpack.NewDecoder(4096, nil), sound: map[string]bool{}}
}

// fault returns what is wrong by a block of headers, or "".
func (b *blocks) fault(block []byte) (string, error) {
	if b.sound[string(block)] {
		return "", nil
	}
	fields, err := b.decoder.DecodeFull(block)
	if err != nil {
		return "", err
	}
	fault := faultOf(fields)
	switch refers := !slices.ContainsFunc(block, func(c byte) bool { return c < 0x80 }); {
	case !refers: // it may have changed the table
		clear(b.sound)
	case fault == "":
		b.sound[string(block)] = true
	}
	return fault, nil
}

// faultOf returns what is wrong by headers, or "".
func faultOf(fields []hpack.HeaderField) string {
	code, message := "0", ""
	for _, f := range fields {
		switch f.Name {
		case ":status":
			if f.Value != "200" {
				return "HTTP status " + f.Value
			}
		case "grpc-status":
			code = f.Value
		case "grpc-message":
			message = f.Value
		}
	}
	if code == "0" {
		return ""
	}
	return fmt.Sprintf("status %s: %s", code, message)
}
