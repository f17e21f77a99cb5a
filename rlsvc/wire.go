package rlsvc

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// begin opens a length-delimited field. What is appended until end is its value. Messages are written in one go this
// way, without counting sizes first.
func begin(b []byte, number protowire.Number) (out []byte, mark int) {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = append(b, 0)
	return b, len(b)
}

// end closes the field that begin opened at mark. A value of 128 bytes or more needs a longer length than begin left
// room for, and is moved.
func end(b []byte, mark int) []byte {
	size := len(b) - mark
	if size < 0x80 {
		b[mark-1] = byte(size)
		return b
	}
	extra := protowire.SizeVarint(uint64(size)) - 1
	for range extra {
		b = append(b, 0)
	}
	copy(b[mark+extra:], b[mark:mark+size])
	protowire.AppendVarint(b[:mark-1], uint64(size))
	return b
}

// appendNumber writes a varint field, also when it is 0.
func appendNumber(b []byte, number protowire.Number, value uint64) []byte {
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, value)
}

// appendText writes a string field, also when it is empty. The text must be UTF-8, or Envoy refuses the answer.
func appendText(b []byte, number protowire.Number, text string) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// seconds rounds up to whole seconds, at least 1: Envoy drops fractions, and nobody should come back too early.
func seconds(d time.Duration) uint64 {
	if d <= time.Second {
		return 1
	}
	return uint64((d-1)/time.Second) + 1
}

// saturate fits a count into a uint32 field without wrapping.
func saturate(n int64) uint64 {
	return uint64(min(max(n, 0), 1<<32-1))
}
