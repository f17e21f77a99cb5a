package rlsvc

import (
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/test/must"
)

func entries(pairs ...string) []*commonv3.RateLimitDescriptor_Entry {
	var out []*commonv3.RateLimitDescriptor_Entry
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, &commonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return out
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	err := json.Unmarshal([]byte(text), &out)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestMetadataTellsTheRequestAsTheReferenceServerDoes(t *testing.T) {
	wire := wireOf(t, &ratelimitv3.RateLimitRequest{
		Domain: "shop", HitsAddend: 5,
		Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: entries("key1", "val1", "key2", "")},
			{},
			{Entries: entries("k", "v"), HitsAddend: wrapperspb.UInt64(0),
				Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: 42, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2),
				}},
		},
	})
	v := engine.Verdict{Statuses: make([]engine.Status, 3)}
	got := askWire(t, Config{Engine: fixed(v), DynamicMetadata: true}, wire).GetDynamicMetadata().AsMap()
	want := parsed(t, `{"domain": "shop", "hitsAddend": 5, "descriptors": [
		{"entries": ["key1=val1", "key2="]},
		{"entries": []},
		{"entries": ["k=v"], "hitsAddend": 0, "limit": "requests_per_unit:42 unit:HOUR unit_multiplier:{value:2}"}]}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMetadataOnlyWhenAskedFor(t *testing.T) {
	if got := ask(t, Config{Engine: fixed(engine.Verdict{Statuses: make([]engine.Status, 1)})},
		1); got.GetDynamicMetadata() != nil {
		t.Errorf("metadata that was not asked for: %v", got.GetDynamicMetadata())
	}
}

func TestDegradedIsAlwaysTold(t *testing.T) {
	for _, metadata := range []bool{false, true} {
		v := engine.Verdict{Degraded: "timeout\xff", Statuses: make([]engine.Status, 1)}
		got := ask(t, Config{Engine: fixed(v), DynamicMetadata: metadata}, 1).GetDynamicMetadata().AsMap()
		if got["degraded"] != "timeout\uFFFD" {
			t.Errorf("with dynamic metadata %t: degraded is %v", metadata, got["degraded"])
		}
	}
}

func TestMetadataHoldsTextOnly(t *testing.T) {
	wire := append(message(1, []byte("\xff")),
		request(message(1, append(message(1, []byte("\xfe")), message(2, []byte("\xc3("))...)))...)
	v := engine.Verdict{Statuses: make([]engine.Status, 1)}
	got := askWire(t, Config{Engine: fixed(v), DynamicMetadata: true}, wire).GetDynamicMetadata().AsMap()
	want := map[string]any{"domain": "\uFFFD", "descriptors": []any{map[string]any{"entries": []any{"\uFFFD=\uFFFD("}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// merging is a verdict over three descriptors that each match a limit with metadata; the first is over. The terms come
// in another order than the descriptors.
func merging(t *testing.T) (v engine.Verdict, shared []map[string]any) {
	shared = []map[string]any{
		parsed(t, `{"name": "over", "only_over": true}`),
		parsed(t, `{"name": "second", "list": [1], "deep": {"a": {"x": 1}, "n": null}, "plain": "text"}`),
		parsed(t, `{"name": "third", "list": [2, "b", false, {}], "deep": {"a": {"x": 2, "y": 3}, "b": true}, `+
			`"plain": {"z": 1}, "more": 1.5}`),
	}
	v.Statuses = []engine.Status{{Over: true}, {}, {}}
	for _, d := range []int{2, 0, 1} {
		v.Match.Terms = append(v.Match.Terms, descriptors.Term{Effect: &descriptors.Effect{Metadata: shared[d]},
			Descriptor: d})
	}
	v.Match.Terms = append(v.Match.Terms,
		descriptors.Term{Effect: &descriptors.Effect{Metadata: map[string]any{"name": "nowhere"}}, Descriptor: -1})
	return v, shared
}

func TestMetadataOfPassedDescriptorsIsMergedFirstWins(t *testing.T) {
	v, _ := merging(t)
	got := ask(t, Config{Engine: fixed(v), DynamicMetadata: true}, 3).GetDynamicMetadata().AsMap()["metadata"]
	want := parsed(t, `{"name": "second", "list": [1], "deep": {"a": {"x": 1, "y": 3}, "n": null, "b": true}, `+
		`"plain": "text", "more": 1.5}`)
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
}

func TestMergingNeverWritesIntoTheRules(t *testing.T) {
	v, shared := merging(t)
	_, before := merging(t)
	s := New(Config{Engine: fixed(v), DynamicMetadata: true})
	var requests sync.WaitGroup
	for range 8 { // under the race detector a write shows even when it changes nothing
		requests.Go(func() {
			for range 20 {
				_, err := s.Answer(t.Context(), append(append(request(), request()...), request()...), nil)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	requests.Wait()
	if !reflect.DeepEqual(shared, before) {
		t.Errorf("the rules' metadata changed: %v", shared)
	}
}

func TestEqualAnswersAreEqualBytes(t *testing.T) {
	v, _ := merging(t)
	s := New(Config{Engine: fixed(v), DynamicMetadata: true})
	wire := append(append(request(), request()...), request()...)
	first := must.Get(s.Answer(t.Context(), wire, nil))(t)
	for range 20 {
		again := must.Get(s.Answer(t.Context(), wire, nil))(t)
		if string(again) != string(first) {
			t.Fatal("the same verdict came out in other bytes")
		}
	}
}

func TestOverrideText(t *testing.T) {
	for _, o := range []*commonv3.RateLimitDescriptor_RateLimitOverride{
		{}, {RequestsPerUnit: 7}, {Unit: typev3.RateLimitUnit_YEAR},
		{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_SECOND, UnitMultiplier: wrapperspb.UInt32(90)},
		{UnitMultiplier: wrapperspb.UInt32(0)},
	} {
		own := generatedOverride(o)
		var m Message
		must.Do(t, m.ParseWire(
			wireOf(t, &ratelimitv3.RateLimitRequest{Descriptors: []*commonv3.RateLimitDescriptor{{Limit: o}}})))
		if *m.Request.Descriptors[0].Override != own {
			t.Fatalf("%v is read as %v", o, m.Request.Descriptors[0].Override)
		}
		back := new(commonv3.RateLimitDescriptor_RateLimitOverride)
		text := overrideText(&own)
		err := prototext.Unmarshal([]byte(text), back)
		if err != nil {
			t.Errorf("%q is not protobuf's text form: %v", text, err)
			continue
		}
		if !proto.Equal(o, back) {
			t.Errorf("%q says %v, want %v", text, back, o)
		}
	}
}
