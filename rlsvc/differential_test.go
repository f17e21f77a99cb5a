package rlsvc

import (
	"fmt"
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

// randomWire writes random requests as protobuf allows it and encoders rarely do: descriptors whose parts come twice
// and are merged, fields in any order, unknown fields between.
func randomWire(tb testing.TB, r *rand.Rand) []byte {
	first, second := randomRequest(r), randomRequest(r)
	var parts []byte
	for i, d := range first.GetDescriptors() {
		body := wireOf(tb, d)
		if i < len(second.GetDescriptors()) && r.IntN(2) == 0 {
			body = append(body, wireOf(tb, second.GetDescriptors()[i])...)
		}
		parts = append(parts, message(2, shuffled(r, body))...)
	}
	first.Descriptors, second.Descriptors = nil, nil
	parts = append(parts, wireOf(tb, first)...)
	if r.IntN(2) == 0 {
		parts = append(parts, wireOf(tb, second)...)
	}
	return shuffled(r, parts)
}

// shuffled puts the fields of a message into another order, with unknown fields between.
func shuffled(r *rand.Rand, wire []byte) []byte {
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
	for range rounds {
		wire := randomWire(t, r)
		var want ratelimitv3.RateLimitRequest
		err := proto.Unmarshal(wire, &want)
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
	for range rounds {
		wire := wireOf(t, randomRequest(r))
		for range 1 + r.IntN(3) {
			wire = mutate(r, wire)
		}
		if agree(t, &m, wire) {
			accepted++
		}
	}
	if accepted < rounds/12 {
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
