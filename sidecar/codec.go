package sidecar

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// wireParser is a message that reads its own wire bytes. It must not keep them.
type wireParser interface{ ParseWire(wire []byte) error }

// wireAppender is a message that writes its own wire bytes.
type wireAppender interface{ AppendWire(b []byte) []byte }

// codec hands the doors their wire bytes, and everything else (health, reflection) to grpc's own codec. grpc's own one
// refuses strings that are not UTF-8 before any handler runs, and Envoy takes that error for an admission.
//
// It carries grpc's own name, because that is what callers ask for, and is therefore never registered: it is given to
// one server by grpc.ForceServerCodecV2, and other servers and clients of the process keep theirs.
type codec struct{ proto encoding.CodecV2 }

// newCodec makes the codec for this sidecar's gRPC server.
func newCodec() encoding.CodecV2 { return codec{proto: encoding.GetCodecV2(proto.Name)} }

// Name is the content subtype that the codec speaks.
func (c codec) Name() string { return proto.Name }

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wireParser)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return m.ParseWire(buffer.ReadOnlyData())
}

// Marshal writes a message. Answers are small, mostly below the size from which grpc's own codec uses a pool, and a
// message that owns its bytes hands them over without a copy when it is asked to append to nil.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(wireAppender)
	if !ok {
		return c.proto.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(m.AppendWire(nil))}, nil
}
