package extauthz

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/door/wire/wiretest"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/test/must"
)

// attributes writes a CheckRequest out of raw fields of its attributes.
func attributes(fields ...[]byte) []byte { return message(1, slices.Concat(fields...)) }

// httpOf writes the attribute with the HTTP request out of raw fields.
func httpOf(fields ...[]byte) []byte { return message(4, message(2, slices.Concat(fields...))) }

// sourceOf writes the attribute with the source's address out of raw fields of the Address.
func sourceOf(fields ...[]byte) []byte { return message(1, message(1, slices.Concat(fields...))) }

// pair writes an entry of a map, or a HeaderValue.
func pair(key, value string) []byte {
	return append(message(1, []byte(key)), message(2, []byte(value))...)
}

// rawPair writes a HeaderValue with a raw value.
func rawPair(key, value string) []byte {
	return append(message(1, []byte(key)), message(3, []byte(value))...)
}

// hostile are requests that must be read, and what they must be read as.
var hostile = []struct {
	name  string
	wire  []byte
	right func(r *descriptors.Request) bool
}{
	{"nothing at all", nil, func(r *descriptors.Request) bool {
		return r.Domain == "" && len(r.Evidence.Headers) == 0 && !r.Evidence.Peer.IsValid() && r.Subject.Path == ""
	}},
	{"bytes that are not UTF-8", attributes(message(1, message(4, []byte{0xfe})),
		httpOf(message(2, []byte{0xfd}), message(4, []byte("/\xff")), message(5, []byte{0xfc}),
			message(3, pair("x-\xfb", "\xc3\x28"))), message(10, pair("plan\xfa", "\xf9"))),
		func(r *descriptors.Request) bool {
			return r.Evidence.Principal == "\xfe" && r.Subject.Method == "\xfd" && r.Subject.Path == "/\xff" &&
				r.Subject.Host == "\xfc" &&
				r.Evidence.Headers[0] == identity.Header{Name: "x-\xfb", Value: "\xc3\x28"} &&
				r.Subject.Entries[0] == descriptors.Entry{Key: "plan\xfa", Value: "\xf9"}
		}},
	{"a name in upper case that is not UTF-8", attributes(httpOf(message(3, pair("X-\xff", "V")))),
		func(r *descriptors.Request) bool {
			return r.Evidence.Headers[0] == identity.Header{Name: "x-\xff", Value: "V"}
		}},
	{"a raw value that is not UTF-8",
		attributes(httpOf(message(13, message(1, rawPair("authorization", "Bearer \xff"))))),
		func(r *descriptors.Request) bool {
			return r.Evidence.Headers[0] == identity.Header{Name: "authorization", Value: "Bearer \xff"}
		}},
	{"a raw header sent twice",
		attributes(
			httpOf(message(13, append(message(1, rawPair("x-api-key", "a")),
				message(1, rawPair("X-Api-Key", "b"))...)))), func(r *descriptors.Request) bool {
			return fmt.Sprint(r.Evidence.Headers) == "[{x-api-key a} {x-api-key b}]"
		}},
	{"a key that the map holds twice",
		attributes(httpOf(message(3, pair("x-api-key", "a")), message(3, pair("x-api-key", "b")))),
		func(r *descriptors.Request) bool {
			return fmt.Sprint(r.Evidence.Headers) == "[{x-api-key a} {x-api-key b}]"
		}},
	{"both encodings: the raw one counts",
		attributes(httpOf(message(3, pair("x-api-key", "joined")), message(13, message(1, rawPair("x-api-key", "raw"))),
			message(3, pair("more", "joined")))), func(r *descriptors.Request) bool {
			return fmt.Sprint(r.Evidence.Headers) == "[{x-api-key raw}]"
		}},
	{"a raw encoding of pseudo-headers alone",
		attributes(httpOf(message(3, pair("x-api-key", "joined")), message(13, message(1, rawPair(":path", "/"))))),
		func(r *descriptors.Request) bool {
			return len(r.Evidence.Headers) == 0
		}},
	{"an empty header map", attributes(httpOf(message(3, pair("x-api-key", "joined")), message(13, nil))),
		func(r *descriptors.Request) bool {
			return fmt.Sprint(r.Evidence.Headers) == "[{x-api-key joined}]"
		}},
	{"pseudo-headers",
		attributes(httpOf(message(3, pair(":path", "/other")), message(3, pair(":authorization", "Bearer x")))),
		func(r *descriptors.Request) bool {
			return len(r.Evidence.Headers) == 0 && r.Subject.Path == ""
		}},
	{"a header without a name", attributes(httpOf(message(3, nil))), func(r *descriptors.Request) bool {
		return r.Evidence.Headers[0] == identity.Header{}
	}},
	{"a header of 60 KiB", attributes(httpOf(message(3, pair("x-long", strings.Repeat("v", 60<<10))))),
		func(r *descriptors.Request) bool {
			return len(r.Evidence.Headers[0].Value) == 60<<10
		}},
	{"a path of 60 KiB", attributes(httpOf(message(4, []byte("/"+strings.Repeat("a/", 30<<10))))),
		func(r *descriptors.Request) bool {
			return len(r.Subject.Path) == 1+60<<10 && r.Evidence.Path == r.Subject.Path
		}},
	{"the domain among extensions", attributes(message(10, pair("plan", "gold")), message(10, pair("domain", "shop")),
		message(10, pair("plan", "iron"))), func(r *descriptors.Request) bool {
		return r.Domain == "shop" && fmt.Sprint(r.Subject.Entries) == "[{plan gold} {plan iron}]"
	}},
	{"a mapped address", attributes(sourceOf(message(1, message(2, []byte("::ffff:192.0.2.1"))))),
		func(r *descriptors.Request) bool {
			return r.Evidence.Peer.String() == "192.0.2.1"
		}},
	{"an address with a zone", attributes(sourceOf(message(1, message(2, []byte("fe80::1%eth0"))))),
		func(r *descriptors.Request) bool {
			return r.Evidence.Peer.String() == "fe80::1"
		}},
	{"an address that is none", attributes(sourceOf(message(1, message(2, []byte("192.0.2.1:80"))))),
		func(r *descriptors.Request) bool {
			return !r.Evidence.Peer.IsValid()
		}},
	{"a pipe after a socket", attributes(sourceOf(message(1, message(2, []byte("192.0.2.1"))), message(2, nil))),
		func(r *descriptors.Request) bool {
			return !r.Evidence.Peer.IsValid()
		}},
	{"a socket without address after a pipe after a socket",
		attributes(sourceOf(message(1, message(2, []byte("192.0.2.1"))), message(2, nil), message(1, nil))),
		func(r *descriptors.Request) bool {
			return !r.Evidence.Peer.IsValid()
		}},
	{"fields of another type", attributes([]byte{1 << 3, 1, 4 << 3, 1, 10 << 3, 1}), func(r *descriptors.Request) bool {
		return len(r.Subject.Entries) == 0
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
			t.Errorf("%s: read as %+v, %+v", c.name, *m.Request.Evidence, *m.Request.Subject)
		}
	}
}

func TestUndecodableRequestsAreErrors(t *testing.T) {
	var m Message
	for name, wire := range map[string][]byte{
		"cut":                     {0x0a, 0x05, 0x01},
		"cut attributes":          attributes([]byte{0x0a, 0x7f}),
		"a cut source":            attributes(message(1, []byte{0x0a, 0x7f})),
		"a cut address":           attributes(sourceOf([]byte{0x0a, 0x7f})),
		"a cut socket":            attributes(sourceOf(message(1, []byte{0x12, 0x7f}))),
		"a cut HTTP request":      attributes(httpOf([]byte{0x12, 0x7f})),
		"a cut header":            attributes(httpOf(message(3, []byte{0x0a, 0x7f}))),
		"a cut raw header":        attributes(httpOf(message(13, message(1, []byte{0x1a, 0x7f})))),
		"a cut context extension": attributes(message(10, []byte{0x0a, 0x7f})),
		"a field number of 0":     {0x02, 0x00},
	} {
		if m.ParseWire(wire) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAMessageKeepsNothingOfTheOneBefore(t *testing.T) {
	full := attributes(
		message(1, append(message(4, []byte("spiffe://a")),
			message(1, message(1, message(2, []byte("192.0.2.1"))))...)),
		httpOf(message(2, []byte("GET")), message(4, []byte("/")), message(5, []byte("host")),
			message(3, pair("a", "b")), message(13, message(1, rawPair("a", "b")))),
		message(10, pair("domain", "shop")), message(10, pair("plan", "gold")),
	)
	var m Message
	for _, wire := range [][]byte{full, nil} {
		must.Do(t, m.ParseWire(wire))
	}
	e, s := m.Request.Evidence, m.Request.Subject
	if m.Request.Domain != "" || e.Principal != "" || e.Path != "" || e.Peer.IsValid() || len(e.Headers) > 0 ||
		s.Method != "" || s.Host != "" || s.Path != "" || len(s.Entries) > 0 {
		t.Errorf("left behind: %+v %+v %+v", m.Request, *e, *s)
	}
	for _, h := range append(m.joined[:cap(m.joined)], m.raw[:cap(m.raw)]...) {
		if h != (identity.Header{}) {
			t.Errorf("the memory still holds %q", h)
		}
	}
}

func TestThousandsOfHeadersKeepTheirPlaces(t *testing.T) {
	const many = 10_000
	var headers []byte
	for i := range many {
		headers = append(headers, message(3, pair(fmt.Sprintf("x-%d", i), fmt.Sprintf("value %d", i)))...)
	}
	var m Message
	must.Do(t, m.ParseWire(attributes(httpOf(headers))))
	if len(m.Request.Evidence.Headers) != many {
		t.Fatalf("%d headers, sent %d", len(m.Request.Evidence.Headers), many)
	}
	for i, h := range m.Request.Evidence.Headers {
		if h.Name != fmt.Sprintf("x-%d", i) || h.Value != fmt.Sprintf("value %d", i) {
			t.Fatalf("header %d is %q", i, h)
		}
	}
	if m.Release() {
		t.Error("the memory of so large a message is kept")
	}
}

// typical is a request as Envoy sends it.
func typical() *authv3.CheckRequest {
	check := requestOf(&authv3.AttributeContext_HttpRequest{
		Id: "6251498032147463872", Method: "POST", Scheme: "https", Host: "shop.example", Path: "/v1/search?q=shoes",
		Protocol: "HTTP/2", Size: 12,
		Headers: map[string]string{
			":path": "/v1/search?q=shoes", ":method": "POST", ":authority": "shop.example", ":scheme": "https",
			"accept":        "*/*",
			"authorization": "Bearer " + strings.Repeat("x", 600), "content-type": "application/json",
			"user-agent": "curl/8", "x-forwarded-for": "192.0.2.1",
			"x-forwarded-proto": "https", "x-request-id": "6d7b4e2e-3f6c-4f0e-8f0a-4d3f6f8f9a10",
			"x-envoy-expected-rq-timeout-ms": "15000",
		},
	})
	check.Attributes.Source = &authv3.AttributeContext_Peer{Principal: "spiffe://mesh/ns/shop/sa/web",
		Address: &corev3.Address{
			Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "10.0.0.7",
				PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}}},
		}}
	check.Attributes.ContextExtensions = map[string]string{"domain": "shop", "plan": "gold"}
	return check
}

// rawly changes a request to the other encoding of headers.
func rawly(check *authv3.CheckRequest) *authv3.CheckRequest {
	http := check.GetAttributes().GetRequest().GetHttp()
	http.HeaderMap = &corev3.HeaderMap{}
	for _, name := range slices.Sorted(maps.Keys(http.GetHeaders())) {
		http.HeaderMap.Headers = append(http.HeaderMap.Headers,
			&corev3.HeaderValue{Key: name, RawValue: []byte(http.GetHeaders()[name])})
	}
	http.Headers = nil
	return check
}

func TestBothEncodingsSayTheSame(t *testing.T) {
	var joined, raw Message
	if joined.ParseWire(wireOf(t, typical())) != nil || raw.ParseWire(wireOf(t, rawly(typical()))) != nil {
		t.Fatal("a typical request cannot be read")
	}
	byName := func(a, b identity.Header) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(joined.evidence.Headers, byName)
	if len(joined.evidence.Headers) != 8 || !slices.Equal(joined.evidence.Headers, raw.evidence.Headers) {
		t.Errorf("the map says %q, header_map says %q", joined.evidence.Headers, raw.evidence.Headers)
	}
}

func TestReadingCopiesTheMessageOnce(t *testing.T) {
	wiretest.CopiesOnce(t, new(Message), wireOf(t, typical()))
}

func BenchmarkParse(b *testing.B) { wiretest.Benchmark(b, new(Message), wireOf(b, typical())) }

// TestAMessageThatBringsTooMuchIsNotRead: it is not an error and names no subject.
func TestAMessageThatBringsTooMuchIsNotRead(t *testing.T) {
	busy := door.NewIntake(0, 1<<20)
	other := door.Share{Intake: busy}
	other.Add(1 << 20)
	header := []byte{3<<3 | 2, 0}
	wire := bytes.Repeat(header, 100_000)
	for _, field := range []byte{2, 4, 1} { // http in request in attributes
		wire = append(protowire.AppendVarint([]byte{field<<3 | 2}, uint64(len(wire))), wire...)
	}
	for name, c := range map[string]struct {
		intake *door.Intake
		wire   []byte
		excess string
	}{
		"too long":                 {nil, make([]byte, 1<<20+1), door.ExcessBytes},
		"many headers":             {door.NewIntake(0, 1<<20), wire, ""},
		"many headers beside more": {busy, wire, door.ExcessMemory},
	} {
		m := &Message{share: door.Share{Intake: c.intake}}
		err := m.ParseWire(c.wire)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if m.Request.Excess != c.excess || (m.Request.Subject == nil) != (c.excess != "") {
			t.Errorf("%s: excess %q with subject %v, want %q", name, m.Request.Excess, m.Request.Subject, c.excess)
		}
		m.End()
	}
}
