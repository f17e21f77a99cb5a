package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields walks over the fields of one message. Strings share one copy of the outermost message and may hold any bytes.
type Fields struct {
	Tag    uint64 // of the field: number<<3 | wire type. A known number with another type is an unknown field
	Number uint64 // value of a varint
	Err    error  // why the walk ended early; a caller may set it to end the walk

	wire     []byte // the whole outermost message
	text     string // the same bytes, for substrings
	at, end  int    // what is left of this message
	from, to int    // where the value of a length-delimited field lies
}

// textRoom is how many bytes of messages share one allocation. A string that is kept keeps so many alive.
const textRoom = 4 << 10

// Reader reads one message after the other. The copies of several messages share an allocation; what was copied once
// never changes, so strings stay valid for as long as they are kept. The zero value works. It must not be copied after
// first use.
type Reader struct{ room strings.Builder }

// Read returns the walk over a message. It copies the bytes once.
func (r *Reader) Read(wire []byte) Fields {
	if len(wire) > r.room.Cap()-r.room.Len() {
		r.room.Reset()
		r.room.Grow(max(len(wire), textRoom))
	}
	from := r.room.Len()
	r.room.Write(wire)
	return Fields{wire: wire, text: r.room.String()[from:], end: len(wire)}
}

// Next reads the next field and reports whether there was one. It ends at the first error.
func (f *Fields) Next() bool {
	if f.Err != nil || f.at >= f.end {
		return false
	}
	tag, n := protowire.ConsumeVarint(f.wire[f.at:f.end])
	if n < 0 {
		return f.fail(n)
	}
	number := tag >> 3
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		f.Err = fmt.Errorf("field number %d at byte %d is out of range", number, f.at)
		return false
	}
	f.at += n
	f.Tag = tag
	n = f.value(f.wire[f.at:f.end])
	if n < 0 {
		return f.fail(n)
	}
	f.at += n
	return true
}

// value reads the value of the field and returns its length, or protowire's negative error code.
func (f *Fields) value(b []byte) int {
	switch typ := protowire.Type(f.Tag & 7); typ {
	case protowire.VarintType:
		number, n := protowire.ConsumeVarint(b)
		f.Number = number
		return n
	case protowire.BytesType:
		part, n := protowire.ConsumeBytes(b)
		f.to = f.at + n
		f.from = f.to - len(part)
		return n
	default:
		return protowire.ConsumeFieldValue(protowire.Number(f.Tag>>3), typ, b)
	}
}

func (f *Fields) fail(code int) bool {
	f.Err = fmt.Errorf("at byte %d: %w", f.at, protowire.ParseError(code))
	return false
}

// Text is the value of a length-delimited field.
func (f *Fields) Text() string { return f.text[f.from:f.to] }

// Sub walks over the value of a length-delimited field.
func (f *Fields) Sub() Fields { return Fields{wire: f.wire, text: f.text, at: f.from, end: f.to} }
