package door

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// wireParser is a message that reads its own wire bytes. It must not keep them.
type wireParser interface{ ParseWire(wire []byte) error }

// sizeJudge is a message that may be refused for its size, unread. It then holds that instead.
type sizeJudge interface{ Exceeds(size int) bool }

// wireWriter is a message that hands over its own wire bytes, once.
type wireWriter interface{ Wire() mem.BufferSlice }

// codec hands the doors their wire bytes, and everything else (health, reflection) to grpc's own codec. grpc's own one
// refuses strings that are not UTF-8 before any handler runs, and Envoy takes that error for an admission.
//
// It carries grpc's own name, because that is what callers ask for, and is therefore never registered: it is given to
// one server by grpc.ForceServerCodecV2, and other servers and clients of the process keep theirs.
type codec struct{ proto encoding.CodecV2 }

// NewCodec makes the codec for a gRPC server with doors.
func NewCodec() encoding.CodecV2 { return codec{proto: encoding.GetCodecV2(proto.Name)} }

// Name is the content subtype that the codec speaks.
func (c codec) Name() string { return proto.Name }

// Unmarshal reads a message. Nearly every one lies in a single buffer, which is read where it is.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(wireParser)
	if !ok {
		return c.proto.Unmarshal(data, v)
	}
	if len(data) == 1 {
		return m.ParseWire(data[0].ReadOnlyData())
	}
	if judge, ok := v.(sizeJudge); ok && judge.Exceeds(data.Len()) {
		return nil
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return m.ParseWire(buffer.ReadOnlyData())
}

// Marshal writes a message. A message that writes its own bytes gets their memory back when grpc has sent them.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(wireWriter)
	if !ok {
		return c.proto.Marshal(v)
	}
	return m.Wire(), nil
}
