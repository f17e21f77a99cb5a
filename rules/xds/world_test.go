package xds

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/spillway-mesh/spillway/test/must"
)

// parse reads a resource from its JSON.
func parse(t testing.TB, text string) *configv3.RateLimitConfig {
	t.Helper()
	c := &configv3.RateLimitConfig{}
	err := protojson.Unmarshal([]byte(text), c)
	if err != nil {
		t.Fatalf("resource %s: %v", text, err)
	}
	return c
}

// response packs resources.
func response(t testing.TB, version string, configs ...*configv3.RateLimitConfig) *discoveryv3.DiscoveryResponse {
	t.Helper()
	r := &discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: "n" + version, TypeUrl: typeURL}
	for _, c := range configs {
		packed := must.Get(anypb.New(c))(t)
		r.Resources = append(r.Resources, packed)
	}
	return r
}

// dump is the rules of a world, or why it was refused.
func dump(w *world) string {
	if w.set == nil {
		return w.reason()
	}
	var b bytes.Buffer
	w.set.Dump(&b)
	return b.String()
}

const gatewayTree = `{"name": "default/eg/http", "domain": "default/eg/http", "descriptors": [
  {"key": "httproute/default/user/rule/0/match/0/*", "value": "httproute/default/user/rule/0/match/0/*",
    "descriptors": [
    {"key": "rule-0-match-0", "rateLimit": {"unit": "DAY", "requestsPerUnit": 2}}]},
  {"key": "httproute/default/ip/rule/0/match/0/*", "value": "httproute/default/ip/rule/0/match/0/*", "descriptors": [
    {"key": "masked_remote_address", "value": "0.0.0.0/0", "rateLimit": {"unit": "DAY", "requestsPerUnit": 100}},
    {"key": "masked_remote_address", "value": "0.0.0.0/0", "descriptors": [
      {"key": "remote_address", "rateLimit": {"unit": "DAY", "requestsPerUnit": 5}}]}]},
  {"key": "httproute/default/none/rule/0/match/0/*", "value": "httproute/default/none/rule/0/match/0/*",
    "descriptors": [
    {"key": "rule-0-match--1", "value": "rule-0-match--1", "rateLimit": {"unit": "DAY"}, "shadowMode": true}]}]}`

// TestDuplicatesOfEnvoyGateway: an exact and a distinct rule of one CIDR are two descriptors of one key and value, and
// both hold.
func TestDuplicatesOfEnvoyGateway(t *testing.T) {
	w := New(Config{}).take(response(t, "1", parse(t, gatewayTree)))
	got := dump(w)
	for _, want := range []string{
		"masked_remote_address_0.0.0.0/0: unit=DAY requests_per_unit=100",
		"masked_remote_address_0.0.0.0/0.remote_address: unit=DAY requests_per_unit=5",
		"rule-0-match--1_rule-0-match--1: unit=DAY requests_per_unit=0",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the rules are\n%s\nwant %s", got, want)
		}
	}
	if len(w.problems) != 0 {
		t.Errorf("problems: %v", w.problems)
	}
	twice := parse(t, `{"domain": "a", "descriptors": [{"key": "k", "rateLimit": {"unit": "DAY", "requestsPerUnit": `+
		`1}}, {"key": "k", "rateLimit": {"unit": "DAY", "requestsPerUnit": 1}}]}`)
	if got = dump(New(Config{}).take(response(t, "1", twice))); !strings.Contains(got,
		"a.k: unit=DAY requests_per_unit=1") {
		t.Errorf("the same limit twice = %s", got)
	}
}

// TestTheOrderOfAServerIsNoContent: all orders of routes have one digest, but not those of patterns that overlap.
func TestTheOrderOfAServerIsNoContent(t *testing.T) {
	s := New(Config{})
	base := s.take(response(t, "1", parse(t, gatewayTree), parse(t, `{"domain": "b", "name": "b"}`)))
	for range 20 {
		c := parse(t, gatewayTree)
		rand.Shuffle(len(c.Descriptors), func(i, j int) {
			c.Descriptors[i], c.Descriptors[j] = c.Descriptors[j], c.Descriptors[i]
		})
		other := s.take(response(t, "2", parse(t, `{"domain": "b", "name": "b"}`), c))
		if other.digest != base.digest || dump(other) != dump(base) {
			t.Fatalf("another order is another content:\n%s\n%s", dump(base), dump(other))
		}
	}
	ab := `{"domain": "a", "descriptors": [{"key": "k", "value": "%s", "rateLimit": {"unit": "DAY"}}, {"key": "k", ` +
		`"value": "%s", "rateLimit": {"unit": "DAY"}}]}`
	for _, pair := range [][2]string{{"a*", "a!b*"}, {"*", "b*"}, {"a*z", "a*b"}} {
		one := s.take(response(t, "1", parse(t, fmt.Sprintf(ab, pair[0], pair[1]))))
		two := s.take(response(t, "1", parse(t, fmt.Sprintf(ab, pair[1], pair[0]))))
		if one.digest == two.digest {
			t.Errorf("the order of %q means something, and has one digest", pair)
		}
	}
}

func TestWhatIsRefusedAndWhy(t *testing.T) {
	deep := &configv3.RateLimitDescriptor{Key: "k"}
	for range maxDepth {
		deep = &configv3.RateLimitDescriptor{Key: "k", Descriptors: []*configv3.RateLimitDescriptor{deep}}
	}
	for name, c := range map[string]struct {
		resources []*configv3.RateLimitConfig
		want      string
	}{
		"no domain": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x"}`)},
			"xds:x: resource 1 of 1 has no domain"},
		"one domain twice": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a"}`),
			parse(t, `{"name": "y", "domain": "a"}`)},
			`xds:y: duplicate domain "a", which the resource "x" has already`},
		"no unit": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a", "descriptors": `+
			`[{"key": "k", "rateLimit": {"requestsPerUnit": 1}}]}`)},
			`invalid rate limit unit "UNKNOWN" of the descriptor with key "k"`},
		"an unknown unit": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a", "descriptors": `+
			`[{"key": "k", "rateLimit": {"unit": 99}}]}`)}, `invalid rate limit unit "99"`},
		"no key": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a", "descriptors": `+
			`[{"value": "v"}]}`)}, "xds:x: descriptor has empty key"},
		"two limits": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a", "descriptors": `+
			`[{"key": "k", "rateLimit": {"unit": 1}}, {"key": "k", "rateLimit": {"unit": 2}}]}`)},
			"xds:x: duplicate descriptor composite key 'a.k_' with two different limits"},
		"a name of itself": {[]*configv3.RateLimitConfig{parse(t, `{"name": "x", "domain": "a", "descriptors": `+
			`[{"key": "k", "rateLimit": {"unit": 1, "name": "n", "replaces": [{"name": "n"}]}}]}`)},
			"replaces should not contain name of same descriptor"},
		"too deep": {
			[]*configv3.RateLimitConfig{{Domain: "a", Descriptors: []*configv3.RateLimitDescriptor{deep}}},
			"nested more than 64 deep"},
		"a key too long": {
			[]*configv3.RateLimitConfig{
				{Domain: "a",
					Descriptors: []*configv3.RateLimitDescriptor{{Key: strings.Repeat("k", maxTextBytes+1)}}}},
			"longer than 4096 bytes"},
		"a terrible message": {[]*configv3.RateLimitConfig{{Domain: strings.Repeat("d", 1<<20)}},
			"longer than 256 bytes"},
	} {
		w := New(Config{}).take(response(t, "1", c.resources...))
		if w.set != nil || !strings.Contains(w.reason(), c.want) || len(w.reason()) > 2*maxReason {
			t.Errorf("%s: %q, want %q", name, dump(w), c.want)
		}
	}
}

func TestBytesThatAreNoResource(t *testing.T) {
	s := New(Config{})
	for name, packed := range map[string]*anypb.Any{
		"of another type": {TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"},
		"noise":           {TypeUrl: typeURL, Value: []byte("\xff\xff\xffnoise")},
		"no UTF-8":        {TypeUrl: typeURL, Value: []byte("\x12\x02\xff\xfe")},
	} {
		w := s.take(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{packed}})
		if w.set != nil || !strings.Contains(w.reason(), "resource 1 of 1 cannot be read as "+typeURL) {
			t.Errorf("%s: %q", name, dump(w))
		}
	}
}

// nested is a resource with descriptors within each other.
func nested(levels int) []byte {
	inner := []byte{}
	for range levels {
		inner = append(protowire.AppendTag(nil, 4, protowire.BytesType), protowire.AppendBytes(nil, inner)...)
	}
	return append(protowire.AppendTag(nil, 3, protowire.BytesType), protowire.AppendBytes(nil, inner)...)
}

// TestWhatFillsTheMemoryIsRefusedBeforeItIsDecoded: a few bytes on the wire can become hundreds in memory.
func TestWhatFillsTheMemoryIsRefusedBeforeItIsDecoded(t *testing.T) {
	s := New(Config{MaxMemory: 1 << 20})
	key := func(text string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), text)
	}
	long := key(strings.Repeat("k", maxTextBytes))
	for range 100 {
		long = protowire.AppendBytes(protowire.AppendTag(long, 4, protowire.BytesType), key("k"))
	}
	for name, c := range map[string]struct {
		value []byte
		want  string
	}{
		"many small descriptors": {bytes.Repeat([]byte("\x1a\x03\x0a\x01k"), 2000), "take more than 1 MiB of memory"},
		"many empty descriptors": {bytes.Repeat([]byte("\x1a\x00"), 2000), "take more than 1 MiB of memory"},
		"a long path to many": {protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), long),
			"take more than 1 MiB of memory"},
		"many entries of metadata": {protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType),
			protowire.AppendBytes(protowire.AppendTag(nil, 8, protowire.BytesType), make([]byte, 20_000))),
			"take more than 1 MiB of memory"},
		"nested for ever": {nested(5000), "nested more than 64 deep"},
	} {
		w := s.take(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: typeURL, Value: c.value}}})
		if w.set != nil || !strings.Contains(w.reason(), c.want) {
			t.Errorf("%s: %q, want %q", name, dump(w), c.want)
		}
	}
	err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Repeat([]byte("\x12\x00"), maxResources+1))},
		&discoveryv3.DiscoveryResponse{})
	if !errors.Is(err, errResources) {
		t.Errorf("too many resources: %v", err)
	}
	var r discoveryv3.DiscoveryResponse
	err = newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer("\x0a\x011\x12\x00")}, &r)
	if err != nil || r.GetVersionInfo() != "1" || len(r.GetResources()) != 1 {
		t.Errorf("a small response is read as %v, %v", &r, err)
	}
}

// TestMergedDomains: with MERGE_DOMAIN_CONFIG several resources may hold one domain.
func TestMergedDomains(t *testing.T) {
	one := parse(t, `{"name": "x", "domain": "a", "descriptors": [{"key": "k", "rateLimit": {"unit": "DAY"}}]}`)
	two := parse(t, `{"name": "y", "domain": "a", "descriptors": [{"key": "l", "rateLimit": {"unit": "DAY"}}, `+
		`{"key": "k", "descriptors": [{"key": "m", "rateLimit": {"unit": "DAY", "unlimited": true}}]}]}`)
	got := dump(New(Config{MergeDomains: true}).take(response(t, "1", two, one)))
	for _, want := range []string{"a.k: ", "a.l: ", "a.k.m: "} {
		if !strings.Contains(got, want) {
			t.Errorf("merged = %s, want %s", got, want)
		}
	}
}

func TestEveryFieldArrives(t *testing.T) {
	w := New(Config{SpareDenied: true}).take(response(t, "1",
		parse(t, `{"domain": "a", "descriptors": [{"key": "k", "value": "v*", "quotaMode": true, "detailedMetric": true,
		"metadata": {"plan": "gold"},
		"rateLimit": {"unit": "WEEK", "requestsPerUnit": 7, "name": "n", "replaces": [{"name": "other"}]}}]}`)))
	got := dump(w)
	for _, want := range []string{"a.k_v*: unit=WEEK requests_per_unit=7", "quota", "detailed", "gold", "n", "other"} {
		if !strings.Contains(got, want) {
			t.Errorf("the rules are %s, want %s", got, want)
		}
	}
	if w.set.Domain("a").ChargeDenied || !New(Config{}).take(response(t, "1", parse(t, shopOnly))).set.Domain(
		"shop").ChargeDenied {
		t.Error("charge_denied must be false with SpareDenied alone")
	}
}

func FuzzTake(f *testing.F) {
	packed := must.Get(proto.Marshal(parse(f, gatewayTree)))(f)
	f.Add(packed)
	f.Add([]byte("\x12\x01a\x1a\x03\x0a\x01k"))
	s := New(Config{OnPanic: func(fault any) { panic(fault) }})
	f.Fuzz(func(t *testing.T, value []byte) {
		w := s.take(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: typeURL, Value: value}}})
		if w.set == nil && w.reason() == "" {
			t.Error("refused without a reason")
		}
	})
}
