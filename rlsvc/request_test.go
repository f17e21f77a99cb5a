package rlsvc

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/wire"
	"github.com/spillway-mesh/spillway/door/wire/wiretest"
	"github.com/spillway-mesh/spillway/test/must"
)

// request writes a message with one descriptor out of raw fields.
func request(descriptor ...[]byte) []byte {
	return message(2, slices.Concat(descriptor...))
}

func message(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

func number(number protowire.Number, value uint64) []byte {
	return wire.AppendNumber(nil, number, value)
}

// limitOf writes the field with a descriptor's override.
func limitOf(parts ...[]byte) []byte { return message(2, slices.Concat(parts...)) }

// hostile are requests that must be read, and what they must be read as.
var hostile = []struct {
	name  string
	wire  []byte
	right func(r *descriptors.Request) bool
}{
	{"nothing at all", nil, func(r *descriptors.Request) bool { return len(r.Descriptors) == 0 }},
	{"a descriptor without entries", request(), func(r *descriptors.Request) bool {
		return len(r.Descriptors) == 1 && len(r.Descriptors[0].Entries) == 0
	}},
	{"bytes that are not UTF-8",
		append(message(1, []byte{0xff}),
			request(message(1, append(message(1, []byte{0xfe}), message(2, []byte{0xc3, 0x28})...)))...),
		func(r *descriptors.Request) bool {
			return r.Domain == "\xff" && r.Descriptors[0].Entries[0] == descriptors.Entry{Key: "\xfe",
				Value: "\xc3\x28"}
		}},
	{"a value of 60 KiB", request(message(1, message(2, make([]byte, 60<<10)))), func(r *descriptors.Request) bool {
		return len(r.Descriptors[0].Entries[0].Value) == 60<<10
	}},
	{"hits of 2^64-1", request(message(3, number(1, math.MaxUint64))), func(r *descriptors.Request) bool {
		return r.Descriptors[0].HitsGiven && r.Descriptors[0].Hits == math.MaxUint64
	}},
	{"hits of explicitly nothing", request(message(3, nil)), func(r *descriptors.Request) bool {
		return r.Descriptors[0].HitsGiven && r.Descriptors[0].Hits == 0
	}},
	{"an override without a unit", request(limitOf(number(1, 5))), func(r *descriptors.Request) bool {
		return *r.Descriptors[0].Override == descriptors.Override{Count: 5, Multiplier: 1}
	}},
	{"an override by the week, which that enum has not", request(limitOf(number(2, 7))),
		func(r *descriptors.Request) bool {
			return r.Descriptors[0].Override.Unit == descriptors.UnitUnknown
		}},
	{"an override by the year", request(limitOf(number(2, 6))), func(r *descriptors.Request) bool {
		return r.Descriptors[0].Override.Unit == descriptors.Year
	}},
	{"a multiplier of explicitly 0", request(limitOf(number(2, 1), message(3, nil))),
		func(r *descriptors.Request) bool {
			return r.Descriptors[0].Override.Multiplier == 0
		}},
	{"an override in two pieces", request(limitOf(number(1, 5), message(3, number(1, 4))),
		limitOf(number(2, 2), message(3, nil))),
		func(r *descriptors.Request) bool {
			return *r.Descriptors[0].Override == descriptors.Override{Count: 5, Unit: descriptors.Minute, Multiplier: 4}
		}},
	{"fields of another type",
		append(number(1, 1), request(number(1, 1), number(2, 1), number(3, 1), message(4, nil))...),
		func(r *descriptors.Request) bool {
			d := r.Descriptors[0]
			return len(d.Entries) == 0 && d.Override == nil && !d.HitsGiven && !d.NegativeHits
		}},
}

func TestHostileRequests(t *testing.T) {
	var m Message
	for _, c := range hostile {
		err := m.ParseWire(c.wire)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !c.right(&m.Request) {
			t.Errorf("%s: read as %+v", c.name, m.Request)
		}
	}
}

func TestThousandsOfDescriptorsKeepTheirPlaces(t *testing.T) {
	var wire []byte
	const many = 10_000
	for i := range many {
		entry := message(1, message(2, fmt.Appendf(nil, "value %d", i)))
		wire = append(wire, request(entry, message(2, number(1, uint64(i))))...)
	}
	var m Message
	must.Do(t, m.ParseWire(wire))
	if len(m.Request.Descriptors) != many {
		t.Fatalf("%d descriptors, sent %d", len(m.Request.Descriptors), many)
	}
	for i, d := range m.Request.Descriptors {
		if want := fmt.Sprintf("value %d", i); d.Entries[0].Value != want || d.Override.Count != uint32(i) {
			t.Fatalf("descriptor %d has %q and %v", i, d.Entries[0].Value, d.Override)
		}
	}
	if m.Release() {
		t.Error("the memory of so large a message is kept")
	}
}

func TestUndecodableRequestsAreErrors(t *testing.T) {
	for name, wire := range map[string][]byte{
		"a cut message":        {0x0a, 0x05, 'a'},
		"a cut tag":            {0x80},
		"field number 0":       {0x00, 0x00},
		"a stray end of group": {0x0c},
		"a reserved wire type": {0x0f},
		"a cut descriptor":     request([]byte{0x0a, 0x7f}),
		"a cut entry":          request(message(1, []byte{0x0a, 0x7f})),
		"a cut override":       request(message(2, []byte{0x08})),
		"cut hits":             request(message(3, []byte{0x08})),
	} {
		var m Message
		if m.ParseWire(wire) == nil {
			t.Errorf("%s was taken: %+v", name, m.Request)
		}
	}
}

func TestMessageForgetsTheOneBefore(t *testing.T) {
	var m Message
	first := append(message(1, []byte("domain")), number(3, 9)...)
	first = append(first, request(message(1, message(1, []byte("key"))), message(2, number(1, 5)),
		message(3, number(1, 7)), number(4, 1))...)
	for _, wire := range [][]byte{first, request(message(1, nil))} {
		must.Do(t, m.ParseWire(wire))
	}
	d := m.Request.Descriptors[0]
	if m.Request.Domain != "" || m.Request.Hits != 0 || d.Entries[0].Key != "" || d.Override != nil || d.HitsGiven ||
		d.NegativeHits {
		t.Errorf("left over from the message before: %+v", m.Request)
	}
}

func TestAPooledMessageKeepsNoClientsBytesAlive(t *testing.T) {
	var m Message
	must.Do(t, m.ParseWire(wireOf(t, typical())))
	m.reset()
	for _, e := range m.entries[:cap(m.entries)] {
		if e != (descriptors.Entry{}) {
			t.Errorf("an entry is still there: %q", e)
		}
	}
	for _, d := range m.Request.Descriptors[:cap(m.Request.Descriptors)] {
		if d.Entries != nil {
			t.Errorf("a descriptor is still there: %q", d.Entries)
		}
	}
}

// typical is a request as Envoy sends it: three descriptors of three entries.
func typical() *ratelimitv3.RateLimitRequest {
	req := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for range 3 {
		req.Descriptors = append(req.Descriptors,
			&commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
				{Key: "tenant", Value: "acme"}, {Key: "remote_address", Value: "203.0.113.7"},
				{Key: "path", Value: "/v1/orders/7"},
			}})
	}
	return req
}

func wireOf(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		tb.Fatalf("marshal: %v", err)
	}
	return wire
}

func TestReadingCopiesTheMessageOnce(t *testing.T) {
	wiretest.CopiesOnce(t, new(Message), wireOf(t, typical()))
}

func BenchmarkParse(b *testing.B) { wiretest.Benchmark(b, new(Message), wireOf(b, typical())) }

// TestAMessageThatBringsTooMuchIsNotRead: it is not an error, comes without descriptors, and the memory of what was
// read is freed.
func TestAMessageThatBringsTooMuchIsNotRead(t *testing.T) {
	descriptor, entry := []byte{2<<3 | 2, 0}, []byte{1<<3 | 2, 0}
	crowd := bytes.Repeat(entry, 100_000)
	wide := append(protowire.AppendVarint([]byte{2<<3 | 2}, uint64(len(crowd))), crowd...)
	busy := door.NewIntake(0, 1<<20)
	other := door.Share{Intake: busy}
	other.Add(1 << 20)
	for name, c := range map[string]struct {
		intake *door.Intake
		wire   []byte
		excess string
	}{
		"at the bound":             {nil, bytes.Repeat(descriptor, door.MaxDescriptors), ""},
		"a descriptor more":        {nil, bytes.Repeat(descriptor, door.MaxDescriptors+1), door.ExcessDescriptors},
		"too long":                 {nil, make([]byte, 1<<20+1), door.ExcessBytes},
		"many entries":             {door.NewIntake(0, 1<<20), wide, ""},
		"many entries beside more": {busy, wide, door.ExcessMemory},
	} {
		m := &Message{share: door.Share{Intake: c.intake}}
		err := m.ParseWire(c.wire)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m.Request.Excess != c.excess || c.excess != "" && len(m.Request.Descriptors) > 0 {
			t.Errorf("%s: excess %q with %d descriptors, want %q", name, m.Request.Excess, len(m.Request.Descriptors),
				c.excess)
		}
		if want := door.MaxDescriptors + 1; c.excess == door.ExcessDescriptors && m.Request.Unread != want ||
			c.excess != door.ExcessDescriptors && m.Request.Unread != 0 {
			t.Errorf("%s: %d descriptors were counted, want %d of one that has too many", name, m.Request.Unread, want)
		}
		m.End()
	}
	many := &Message{}
	err := many.ParseWire(append(bytes.Repeat(descriptor, 2*door.MaxDescriptors), 3<<3, 1))
	if err != nil || many.Request.Unread != 2*door.MaxDescriptors {
		t.Errorf("%d descriptors were counted (%v), want %d", many.Request.Unread, err, 2*door.MaxDescriptors)
	}
}
