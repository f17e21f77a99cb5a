package wiretest

import (
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// Rounds is how many of n random messages a test tries: all of them, or a twentieth under the race detector. They run
// on one goroutine, so that it makes them slow and learns nothing from them.
func Rounds(n int) int {
	if short {
		return n / 20
	}
	return n
}

// Shape names, by their field numbers, the messages inside a message that may come in pieces.
type Shape map[protowire.Number]Shape

// Scrambled writes a message as protobuf allows it and encoders rarely do: fields in any order, messages in pieces that
// are merged, unknown fields between. The wire bytes must be valid.
func Scrambled(r *rand.Rand, wire []byte, inside Shape) []byte {
	var parts [][]byte
	for rest := wire; len(rest) > 0; {
		number, kind, n := protowire.ConsumeField(rest)
		field := rest[:n]
		rest = rest[n:]
		inner, nested := inside[number]
		if !nested || kind != protowire.BytesType {
			parts = append(parts, field)
			continue
		}
		_, _, head := protowire.ConsumeTag(field)
		body, _ := protowire.ConsumeBytes(field[head:])
		body = Scrambled(r, body, inner)
		cut := cutPoint(r, body)
		parts = append(parts, message(number, body[:cut]))
		if cut < len(body) {
			parts = append(parts, message(number, body[cut:]))
		}
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	var out []byte
	for _, part := range parts {
		out = append(out, part...)
		if r.IntN(4) == 0 {
			out = protowire.AppendTag(out, protowire.Number(1+r.IntN(30)), protowire.Fixed32Type)
			out = protowire.AppendFixed32(out, r.Uint32())
		}
	}
	return out
}

// cutPoint is the end of one of the fields.
func cutPoint(r *rand.Rand, body []byte) int {
	at := 0
	for at < len(body) && r.IntN(3) > 0 {
		_, _, n := protowire.ConsumeField(body[at:])
		at += n
	}
	return at
}

func message(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

// mutated changes, cuts or inserts bytes.
func mutated(r *rand.Rand, wire []byte) []byte {
	if len(wire) == 0 {
		return []byte{byte(r.Uint32())}
	}
	at := r.IntN(len(wire))
	switch r.IntN(4) {
	case 0:
		wire[at] ^= 1 << r.IntN(8)
	case 1:
		wire[at] = byte(r.Uint32())
	case 2:
		wire = wire[:at]
	case 3:
		wire = append(wire[:at:at], append([]byte{byte(r.Uint32())}, wire[at:]...)...)
	}
	return wire
}
