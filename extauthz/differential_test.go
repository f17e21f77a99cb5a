package extauthz

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/spillway-mesh/spillway/door/wire/wiretest"
	"github.com/spillway-mesh/spillway/identity"
)

// rounds is how many random messages a differential test tries.
var rounds = wiretest.Rounds(30_000)

// differs returns how a message differs from what generated code read from the same bytes, or "".
func differs(m *Message, want *authv3.CheckRequest) string {
	req, source := &m.Request, want.GetAttributes().GetSource()
	http := want.GetAttributes().GetRequest().GetHttp()
	for _, c := range []struct{ what, got, want string }{
		{"domain", req.Domain, want.GetAttributes().GetContextExtensions()["domain"]},
		{"principal", req.Evidence.Principal, source.GetPrincipal()},
		{"evidence's path", req.Evidence.Path, http.GetPath()},
		{"path", req.Subject.Path, http.GetPath()},
		{"method", req.Subject.Method, http.GetMethod()},
		{"host", req.Subject.Host, http.GetHost()},
		{"peer", req.Evidence.Peer.String(), generatedPeer(source.GetAddress()).String()},
	} {
		if c.got != c.want {
			return fmt.Sprintf("%s %q, generated code reads %q", c.what, c.got, c.want)
		}
	}
	entries := map[string]string{}
	for _, e := range req.Subject.Entries {
		entries[e.Key] = e.Value
	}
	if req.Domain != "" || want.GetAttributes().GetContextExtensions()["domain"] != "" {
		entries["domain"] = req.Domain
	}
	if diff := mapDiffers(entries, want.GetAttributes().GetContextExtensions()); diff != "" {
		return "context extensions: " + diff
	}
	return headersDiffer(req.Evidence.Headers, http)
}

func generatedPeer(address *corev3.Address) netip.Addr {
	text := address.GetSocketAddress().GetAddress()
	parsed, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return parsed.WithZone("").Unmap()
}

// mapDiffers compares without empty values of the key domain, which is never an entry.
func mapDiffers(got, want map[string]string) string {
	for key, value := range want {
		if key == "domain" && value == "" {
			continue
		}
		have, found := got[key]
		if !found || have != value {
			return fmt.Sprintf("%q is %q (found: %t), generated code reads %q", key, have, found, value)
		}
	}
	for key := range got {
		if _, found := want[key]; !found {
			return fmt.Sprintf("%q is there, and not for generated code", key)
		}
	}
	return ""
}

// headersDiffer compares headers: those of header_map one by one, those of the map by their last value, since both are
// kept when bytes hold a key twice.
func headersDiffer(got []identity.Header, http *authv3.AttributeContext_HttpRequest) string {
	if raw := http.GetHeaderMap().GetHeaders(); len(raw) > 0 {
		var want []identity.Header
		for _, h := range raw {
			value := h.GetValue()
			if len(h.GetRawValue()) > 0 {
				value = string(h.GetRawValue())
			}
			if !strings.HasPrefix(h.GetKey(), ":") {
				want = append(want, identity.Header{Name: asciiLower(h.GetKey()), Value: value})
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			return fmt.Sprintf("raw headers %q, generated code reads %q", got, want)
		}
		return ""
	}
	values := map[string]string{}
	for _, h := range got {
		values[h.Name] = h.Value
	}
	want := map[string]string{}
	for key, value := range http.GetHeaders() {
		if !strings.HasPrefix(key, ":") {
			want[asciiLower(key)] = value
		}
	}
	if len(want) < len(http.GetHeaders()) && ambiguous(http.GetHeaders()) {
		return "" // names that differ in case alone: which is last depends on the order on the wire
	}
	if diff := mapDiffers(values, want); diff != "" {
		return "headers: " + diff
	}
	return ""
}

func asciiLower(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, name)
}

func ambiguous(headers map[string]string) bool {
	seen := map[string]bool{}
	for key := range headers {
		if seen[asciiLower(key)] {
			return true
		}
		seen[asciiLower(key)] = true
	}
	return false
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

func randomText(r *rand.Rand) string {
	parts := []string{"", "key", "authorization", "x-api-key", "Bearer a.b.c", "é", "日本", "/a/../b?q=1", "\x00", "\r\n",
		":path", "X-Upper", strings.Repeat("x", 200)}
	return pick(r, parts...) + pick(r, parts...)
}

func randomMap(r *rand.Rand, keys ...string) map[string]string {
	out := map[string]string{}
	for range r.IntN(5) {
		key := randomText(r)
		if r.IntN(2) == 0 {
			key = pick(r, keys...)
		}
		out[key] = randomText(r)
	}
	return out
}

func randomCheck(r *rand.Rand) *authv3.CheckRequest {
	http := &authv3.AttributeContext_HttpRequest{
		Id: randomText(r), Method: pick(r, "", "GET", "POST"), Path: randomText(r), Host: randomText(r),
		Scheme: pick(r, "http", "https"),
		Size:   r.Int64(), Protocol: "HTTP/2", Headers: randomMap(r, ":path", "authorization", "accept",
			"x-forwarded-for"),
	}
	if r.IntN(2) == 0 {
		http.HeaderMap = &corev3.HeaderMap{}
		for range r.IntN(5) {
			h := &corev3.HeaderValue{Key: randomText(r), Value: pick(r, "", randomText(r))}
			if r.IntN(2) == 0 {
				h.RawValue = []byte{byte(r.Uint32()), byte(r.Uint32())}[:r.IntN(3)]
			}
			http.HeaderMap.Headers = append(http.HeaderMap.Headers, h)
		}
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: randomAddress(r), Principal: randomText(r),
			Service: randomText(r), Labels: randomMap(r, "a")},
		Destination:       &authv3.AttributeContext_Peer{Address: randomAddress(r), Principal: randomText(r)},
		Request:           &authv3.AttributeContext_Request{Time: timestamppb.Now(), Http: http},
		ContextExtensions: randomMap(r, "domain", "domain", "plan"),
		TlsSession:        &authv3.AttributeContext_TLSSession{Sni: randomText(r)},
	}}
}

func randomAddress(r *rand.Rand) *corev3.Address {
	switch r.IntN(4) {
	case 0:
		return nil
	case 1:
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/socket", Mode: 438}}}
	}
	address := pick(r, "", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1", "fe80::1%eth0", "nonsense", "300.1.1.1")
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(r.IntN(1 << 16))},
	}}}
}

// checkShape is what may come in pieces: attributes, source, address, socket, pipe, destination, request, http, header
// map.
var checkShape = wiretest.Shape{1: {1: {1: {1: {}, 2: {}}}, 2: {}, 4: {2: {13: {}}}}}

// randomWire writes one random request, or two that are merged.
func randomWire(tb testing.TB, r *rand.Rand) []byte {
	wire := wireOf(tb, randomCheck(r))
	if r.IntN(3) == 0 {
		wire = append(wire, wireOf(tb, randomCheck(r))...)
	}
	return wiretest.Scrambled(r, wire, checkShape)
}

func message(number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), body)
}

// twins are a message and what generated code reads. That one refuses what is not UTF-8, and what is broken in a part
// that is not read.
func twins(ours *Message) wiretest.Twin {
	generated := new(authv3.CheckRequest)
	return wiretest.Twin{Ours: ours, Generated: generated, Differs: func() string { return differs(ours, generated) }}
}

func TestRandomRequestsReadAsGeneratedCodeReadsThem(t *testing.T) {
	twins(new(Message)).AgreeOnValid(t, rounds, func(r *rand.Rand) []byte { return randomWire(t, r) })
}

func TestMutatedRequestsAreTakenWhenGeneratedCodeTakesThem(t *testing.T) {
	twins(new(Message)).AgreeOnMutated(t, rounds, func(r *rand.Rand) []byte { return wireOf(t, randomCheck(r)) })
}
