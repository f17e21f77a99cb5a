package rlsvc

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillway-mesh/spillway/descriptors"
)

// differs says in which way a message is not what generated code read from the same bytes, or nothing.
func differs(m *Message, want *ratelimitv3.RateLimitRequest) string {
	got := &m.Request
	switch {
	case got.Domain != want.GetDomain():
		return fmt.Sprintf("domain %q, generated code reads %q", got.Domain, want.GetDomain())
	case got.Hits != uint64(want.GetHitsAddend()):
		return fmt.Sprintf("hits %d, generated code reads %d", got.Hits, want.GetHitsAddend())
	case len(got.Descriptors) != len(want.GetDescriptors()):
		return fmt.Sprintf("%d descriptors, generated code reads %d", len(got.Descriptors), len(want.GetDescriptors()))
	}
	for i, d := range want.GetDescriptors() {
		if diff := descriptorDiffers(&got.Descriptors[i], d); diff != "" {
			return fmt.Sprintf("descriptor %d: %s", i, diff)
		}
	}
	return ""
}

func descriptorDiffers(got *descriptors.Descriptor, want *commonv3.RateLimitDescriptor) string {
	if len(got.Entries) != len(want.GetEntries()) {
		return fmt.Sprintf("%d entries, generated code reads %d", len(got.Entries), len(want.GetEntries()))
	}
	for i, e := range want.GetEntries() {
		if got.Entries[i] != (descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()}) {
			return fmt.Sprintf("entry %d is %q, generated code reads %q", i, got.Entries[i], e)
		}
	}
	switch {
	case got.HitsGiven != (want.GetHitsAddend() != nil) || got.Hits != want.GetHitsAddend().GetValue():
		return fmt.Sprintf("hits %d (given: %t), generated code reads %v", got.Hits, got.HitsGiven, want.GetHitsAddend())
	case got.NegativeHits != want.GetIsNegativeHits():
		return fmt.Sprintf("negative hits: %t", got.NegativeHits)
	case (got.Override == nil) != (want.GetLimit() == nil):
		return fmt.Sprintf("override %v, generated code reads %v", got.Override, want.GetLimit())
	case got.Override != nil && *got.Override != generatedOverride(want.GetLimit()):
		return fmt.Sprintf("override %v, generated code reads %v", *got.Override, want.GetLimit())
	}
	return ""
}

func generatedOverride(l *commonv3.RateLimitDescriptor_RateLimitOverride) descriptors.Override {
	units := map[typev3.RateLimitUnit]descriptors.Unit{
		typev3.RateLimitUnit_SECOND: descriptors.Second, typev3.RateLimitUnit_MINUTE: descriptors.Minute,
		typev3.RateLimitUnit_HOUR: descriptors.Hour, typev3.RateLimitUnit_DAY: descriptors.Day,
		typev3.RateLimitUnit_MONTH: descriptors.Month, typev3.RateLimitUnit_YEAR: descriptors.Year,
	}
	o := descriptors.Override{Count: l.GetRequestsPerUnit(), Unit: units[l.GetUnit()], Multiplier: 1}
	if l.GetUnitMultiplier() != nil {
		o.Multiplier = l.GetUnitMultiplier().GetValue()
	}
	return o
}

func randomText(r *rand.Rand) string {
	parts := []string{"", "key", "value", "tenant", "é", "日本", "a=b", "\x00", "\r\n", `"`, "127.0.0.1", strings.Repeat("x", 200)}
	return parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
}

func randomRequest(r *rand.Rand) *ratelimitv3.RateLimitRequest {
	req := &ratelimitv3.RateLimitRequest{Domain: randomText(r)}
	if r.IntN(2) == 0 {
		req.HitsAddend = r.Uint32() >> r.IntN(32)
	}
	for range r.IntN(4) {
		d := &commonv3.RateLimitDescriptor{IsNegativeHits: r.IntN(4) == 0}
		for range r.IntN(4) {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: randomText(r), Value: randomText(r)})
		}
		if r.IntN(3) == 0 {
			d.HitsAddend = wrapperspb.UInt64(r.Uint64() >> r.IntN(65))
		}
		if r.IntN(3) == 0 {
			d.Limit = randomOverride(r)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

func randomOverride(r *rand.Rand) *commonv3.RateLimitDescriptor_RateLimitOverride {
	l := &commonv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: r.Uint32() >> r.IntN(33),
		Unit:            typev3.RateLimitUnit(r.IntN(10) - 1),
	}
	if r.IntN(3) == 0 {
		l.UnitMultiplier = wrapperspb.UInt32(r.Uint32() >> r.IntN(33))
	}
	return l
}

// pieces writes a message as protobuf allows it and no encoder does: cut between two fields and put together in another
// order, with unknown fields between.
func pieces(r *rand.Rand, wire []byte) []byte {
	var parts [][]byte
	for rest := wire; len(rest) > 0; {
		_, _, n := protowire.ConsumeField(rest)
		parts = append(parts, rest[:n])
		rest = rest[n:]
	}
	r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	var out []byte
	for _, part := range parts {
		out = append(out, part...)
		if r.IntN(3) == 0 {
			out = protowire.AppendTag(out, protowire.Number(1+r.IntN(30)), protowire.Fixed32Type)
			out = protowire.AppendFixed32(out, r.Uint32())
		}
	}
	return out
}

func TestRandomRequestsReadAsGeneratedCodeReadsThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m Message // one for all, as in a pool
	for range 60_000 {
		wire, err := proto.Marshal(randomRequest(r))
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		wire = pieces(r, wire)
		var want ratelimitv3.RateLimitRequest
		err = proto.Unmarshal(wire, &want)
		if err != nil {
			t.Fatalf("generated code: %v", err)
		}
		err = m.ParseWire(wire)
		if err != nil {
			t.Fatalf("%x: %v", wire, err)
		}
		if diff := differs(&m, &want); diff != "" {
			t.Fatalf("%x: %s", wire, diff)
		}
	}
}

// agree checks the parser against generated code on any bytes: what that one accepts, so do we, with the same content;
// what we refuse, so does it.
func agree(t *testing.T, m *Message, wire []byte) (accepted bool) {
	t.Helper()
	var want ratelimitv3.RateLimitRequest
	generated := proto.Unmarshal(wire, &want)
	ours := m.ParseWire(wire)
	if generated != nil {
		// The one thing that generated code refuses and we take.
		if ours == nil && !strings.Contains(generated.Error(), "UTF-8") {
			t.Fatalf("%x: generated code refuses it (%v), we take it", wire, generated)
		}
		return false
	}
	if ours != nil {
		t.Fatalf("%x: generated code takes it, we say: %v", wire, ours)
	}
	if diff := differs(m, &want); diff != "" {
		t.Fatalf("%x: %s", wire, diff)
	}
	return true
}

func TestMutatedRequestsAreTakenWhenGeneratedCodeTakesThem(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var m Message
	accepted := 0
	for range 60_000 {
		wire, err := proto.Marshal(randomRequest(r))
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		for range 1 + r.IntN(3) {
			wire = mutate(r, wire)
		}
		if agree(t, &m, wire) {
			accepted++
		}
	}
	if accepted < 5000 {
		t.Errorf("only %d mutations were decodable: the test says little", accepted)
	}
}

func mutate(r *rand.Rand, wire []byte) []byte {
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

// request writes a message with one descriptor out of raw fields.
func request(descriptor ...[]byte) []byte {
	var body []byte
	for _, field := range descriptor {
		body = append(body, field...)
	}
	return message(2, body)
}

func message(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

func number(number protowire.Number, value uint64) []byte {
	return appendNumber(nil, number, value)
}

func TestHostileRequests(t *testing.T) {
	limit := func(parts ...[]byte) []byte {
		var body []byte
		for _, p := range parts {
			body = append(body, p...)
		}
		return message(2, body)
	}
	var m Message
	cases := []struct {
		name  string
		wire  []byte
		right func(r *descriptors.Request) bool
	}{
		{"nothing at all", nil, func(r *descriptors.Request) bool { return len(r.Descriptors) == 0 }},
		{"a descriptor without entries", request(), func(r *descriptors.Request) bool {
			return len(r.Descriptors) == 1 && len(r.Descriptors[0].Entries) == 0
		}},
		{"bytes that are not UTF-8", append(message(1, []byte{0xff}), request(message(1, append(message(1, []byte{0xfe}), message(2, []byte{0xc3, 0x28})...)))...),
			func(r *descriptors.Request) bool {
				return r.Domain == "\xff" && r.Descriptors[0].Entries[0] == descriptors.Entry{Key: "\xfe", Value: "\xc3\x28"}
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
		{"an override without a unit", request(limit(number(1, 5))), func(r *descriptors.Request) bool {
			return *r.Descriptors[0].Override == descriptors.Override{Count: 5, Multiplier: 1}
		}},
		{"an override by the week, which that enum has not", request(limit(number(2, 7))), func(r *descriptors.Request) bool {
			return r.Descriptors[0].Override.Unit == descriptors.UnitUnknown
		}},
		{"an override by the year", request(limit(number(2, 6))), func(r *descriptors.Request) bool {
			return r.Descriptors[0].Override.Unit == descriptors.Year
		}},
		{"a multiplier of explicitly 0", request(limit(number(2, 1), message(3, nil))), func(r *descriptors.Request) bool {
			return r.Descriptors[0].Override.Multiplier == 0
		}},
		{"an override in two pieces", request(limit(number(1, 5), message(3, number(1, 4))), limit(number(2, 2), message(3, nil))),
			func(r *descriptors.Request) bool {
				return *r.Descriptors[0].Override == descriptors.Override{Count: 5, Unit: descriptors.Minute, Multiplier: 4}
			}},
		{"fields of another type", append(number(1, 1), request(number(1, 1), number(2, 1), number(3, 1), message(4, nil))...),
			func(r *descriptors.Request) bool {
				d := r.Descriptors[0]
				return len(d.Entries) == 0 && d.Override == nil && !d.HitsGiven && !d.NegativeHits
			}},
	}
	for _, c := range cases {
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
	err := m.ParseWire(wire)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Request.Descriptors) != many {
		t.Fatalf("%d descriptors, sent %d", len(m.Request.Descriptors), many)
	}
	for i, d := range m.Request.Descriptors {
		if want := fmt.Sprintf("value %d", i); d.Entries[0].Value != want || d.Override.Count != uint32(i) {
			t.Fatalf("descriptor %d has %q and %v", i, d.Entries[0].Value, d.Override)
		}
	}
	if !m.large() {
		t.Error("the memory of so large a message would be kept")
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
	first = append(first, request(message(1, message(1, []byte("key"))), message(2, number(1, 5)), message(3, number(1, 7)), number(4, 1))...)
	for _, wire := range [][]byte{first, request(message(1, nil))} {
		err := m.ParseWire(wire)
		if err != nil {
			t.Fatal(err)
		}
	}
	d := m.Request.Descriptors[0]
	if m.Request.Domain != "" || m.Request.Hits != 0 || d.Entries[0].Key != "" || d.Override != nil || d.HitsGiven || d.NegativeHits {
		t.Errorf("left over from the message before: %+v", m.Request)
	}
}

// typical is a request as Envoy sends it: three descriptors of three entries.
func typical() *ratelimitv3.RateLimitRequest {
	req := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for range 3 {
		req.Descriptors = append(req.Descriptors, &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "tenant", Value: "acme"}, {Key: "remote_address", Value: "203.0.113.7"}, {Key: "path", Value: "/v1/orders/7"},
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

func TestParseAllocatesTheStringOnly(t *testing.T) {
	wire := wireOf(t, typical())
	var m Message
	allocs := testing.AllocsPerRun(100, func() {
		if m.ParseWire(wire) != nil {
			t.Error("refused")
		}
	})
	if allocs > 1 {
		t.Errorf("%v allocations for a request, at most 1", allocs)
	}
}

func BenchmarkParse(b *testing.B) {
	wire := wireOf(b, typical())
	var m Message
	b.ReportAllocs()
	for b.Loop() {
		if m.ParseWire(wire) != nil {
			b.Fatal("refused")
		}
	}
}
