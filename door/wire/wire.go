// Package wire reads and writes protobuf wire bytes and clean header text: what every door of Envoy's needs, without
// generated code, which refuses strings that are not UTF-8.
package wire

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Begin opens a length-delimited field. What is appended until End is its value. Messages are written in one go this
// way, without counting sizes first.
func Begin(b []byte, number protowire.Number) (out []byte, mark int) {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = append(b, 0)
	return b, len(b)
}

// End closes the field that Begin opened at mark. A value of 128 bytes or more needs a longer length than Begin left
// room for, and is moved.
func End(b []byte, mark int) []byte {
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

// AppendNumber writes a varint field, also when it is 0.
func AppendNumber(b []byte, number protowire.Number, value uint64) []byte {
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, value)
}

// AppendText writes a string field, also when it is empty. The text must be UTF-8, or Envoy refuses the answer.
func AppendText(b []byte, number protowire.Number, text string) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// AppendString writes a string field with every byte that is not UTF-8 replaced. Only such a text is copied.
func AppendString(b []byte, number protowire.Number, text string) []byte {
	return AppendText(b, number, strings.ToValidUTF8(text, "\uFFFD"))
}

// Field numbers of HeaderValue, and of google.protobuf.Struct, its entries and Value.
const (
	headerKey    = 1
	headerValue  = 2
	structFields = 1
	fieldKey     = 1
	fieldValue   = 2
	valueString  = 3
)

// BeginHeader opens a HeaderValue with a name that descriptors.HeaderName allows. What is appended until EndHeader is
// the value.
func BeginHeader(b []byte, number protowire.Number, name string) (out []byte, header, value int) {
	b, header = Begin(b, number)
	b = AppendText(b, headerKey, name)
	b, value = Begin(b, headerValue)
	return b, header, value
}

// EndHeader closes what BeginHeader opened.
func EndHeader(b []byte, header, value int) []byte { return End(End(b, value), header) }

// BeginField opens a field of a google.protobuf.Struct. What is appended until EndField is the inside of its Value.
func BeginField(b []byte, key string) (out []byte, field, value int) {
	b, field = Begin(b, structFields)
	b = AppendString(b, fieldKey, key)
	b, value = Begin(b, fieldValue)
	return b, field, value
}

// EndField closes what BeginField opened.
func EndField(b []byte, field, value int) []byte { return End(End(b, value), field) }

// AppendLabel writes a field of a google.protobuf.Struct whose value is a name, cleaned by AppendName.
func AppendLabel(b []byte, key, name string) []byte {
	b, field, value := BeginField(b, key)
	b, text := Begin(b, valueString)
	return EndField(End(AppendName(b, name), text), field, value)
}
