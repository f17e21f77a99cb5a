package xds

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of the messages that are looked at before they are decoded.
const (
	responseResources     protowire.Number = 2
	configDescriptors     protowire.Number = 3
	descriptorKey         protowire.Number = 1
	descriptorValue       protowire.Number = 2
	descriptorDescriptors protowire.Number = 4
)

// What the compiled form of a part takes, in bytes, estimated from measurements.
const (
	perResource  = 4096
	perNode      = 768
	perPathByte  = 3  // of the path from the domain to the node
	perLevel     = 24 // above the node
	perOtherByte = 64 // of limits and metadata
)

var errDepth = fmt.Errorf("descriptors are nested more than %d deep", maxDepth)

// size estimates the memory that resources will take, from their bytes: a few bytes on the wire can become hundreds in
// memory, so this comes before decoding. Bytes that cannot be read are left to the decoder.
type size struct{ bytes, most int64 }

// resource adds a RateLimitConfig. It returns why there is too much, or nil.
func (s *size) resource(message []byte) error {
	s.bytes += perResource
	return s.level(message, configDescriptors, 0, 1)
}

// level adds the descriptors that a message holds in a field, and those below them. Above is the length of the path to
// the message.
func (s *size) level(message []byte, field protowire.Number, above, level int) error {
	return fields(message, func(number protowire.Number, value []byte) error {
		if number != field {
			return nil
		}
		if level > maxDepth {
			return errDepth
		}
		path, err := s.node(value, above)
		if err != nil {
			return err
		}
		s.bytes += perNode + int64(perPathByte*path+perLevel*level)
		if s.bytes > s.most {
			return fmt.Errorf("the resources would take more than %d MiB of memory", s.most>>20)
		}
		return s.level(value, descriptorDescriptors, path, level+1)
	})
}

// node adds the own bytes of one descriptor, and returns the length of its path.
func (s *size) node(message []byte, above int) (path int, err error) {
	path = above + 2
	return path, fields(message, func(number protowire.Number, value []byte) error {
		switch number {
		case descriptorDescriptors:
		case descriptorKey, descriptorValue:
			path += len(value)
			if len(value) > maxTextBytes {
				return fmt.Errorf("a key or value of a descriptor is longer than %d bytes", maxTextBytes)
			}
		default:
			s.bytes += perOtherByte * int64(len(value))
		}
		return nil
	})
}

// fields yields the fields of a message that hold bytes. It ends where the message cannot be read.
func fields(message []byte, yield func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(number, kind, message)
			if n < 0 {
				return nil
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		err := yield(number, value)
		if err != nil {
			return err
		}
	}
	return nil
}

// codec is gRPC's own, but that it does not decode a response with too many resources: each costs memory before it can
// be looked at.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

var errResources = errors.New("the response was not read: there are too many resources")

// Unmarshal decodes a response.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	message, count := data.Materialize(), 0
	err := fields(message, func(number protowire.Number, _ []byte) error {
		if number == responseResources {
			count++
		}
		if count > maxResources {
			return fmt.Errorf("%w: at most %d are taken", errResources, maxResources)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, v)
}
