package rlsvc

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door/wire/wiretest"
)

// rounds is how many random messages a differential test tries.
var rounds = wiretest.Rounds(60_000)

// differs returns how a message differs from what generated code read from the same bytes, or "".
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
		return fmt.Sprintf("hits %d (given: %t), generated code reads %v", got.Hits, got.HitsGiven,
			want.GetHitsAddend())
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
	parts := []string{"", "key", "value", "tenant", "é", "日本", "a=b", "\x00", "\r\n", `"`, "127.0.0.1",
		strings.Repeat("x", 200)}
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

// descriptorShape is what may come in pieces inside a descriptor: an override with its multiplier, and hits.
var descriptorShape = wiretest.Shape{2: {3: {}}, 3: {}}

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
		parts = append(parts, message(2, wiretest.Scrambled(r, body, descriptorShape))...)
	}
	first.Descriptors, second.Descriptors = nil, nil
	parts = append(parts, wireOf(tb, first)...)
	if r.IntN(2) == 0 {
		parts = append(parts, wireOf(tb, second)...)
	}
	return wiretest.Scrambled(r, parts, nil)
}

// twins are a message and what generated code reads. They may differ in one thing: that one refuses what is not UTF-8.
func twins(ours *Message) wiretest.Twin {
	generated := new(ratelimitv3.RateLimitRequest)
	return wiretest.Twin{
		Ours: ours, Generated: generated, Differs: func() string { return differs(ours, generated) },
		Lenient: func(refusal error) bool { return strings.Contains(refusal.Error(), "UTF-8") },
	}
}

func TestRandomRequestsReadAsGeneratedCodeReadsThem(t *testing.T) {
	twins(new(Message)).AgreeOnValid(t, rounds, func(r *rand.Rand) []byte { return randomWire(t, r) })
}

func TestMutatedRequestsAreTakenWhenGeneratedCodeTakesThem(t *testing.T) {
	twins(new(Message)).AgreeOnMutated(t, rounds, func(r *rand.Rand) []byte { return wireOf(t, randomRequest(r)) })
}
