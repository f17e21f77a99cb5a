package integration

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// encoding is one way in which headers come to the sidecar.
type encoding struct {
	name   string
	encode func(a ask) []byte
}

// encodings are Envoy's two, and one that Envoy would not send: the map with the client's own bytes.
var encodings = []encoding{
	{"raw", func(a ask) []byte { return encode(a, headerMap(a.headers)) }},
	{"joined", func(a ask) []byte { return encode(a, joined(a.headers, clean)) }},
	{"bytes", func(a ask) []byte { return encode(a, joined(a.headers, func(v string) string { return v })) }},
}

// bytesCodec hands over messages as they are: generated code would refuse what is not UTF-8.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("no message: %T", v)
	}
	*to = append([]byte(nil), data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// field appends a length-delimited field.
func field(b []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
}

// pair is an entry of a map.
func pair(key, value string) string { return string(field(field(nil, 1, key), 2, value)) }

// encode writes a CheckRequest, its headers given as fields of AttributeContext.HttpRequest.
func encode(a ask, headers []byte) []byte {
	socket := protowire.AppendVarint(protowire.AppendTag(field(nil, 2, a.peer), 3, protowire.VarintType), 4711)
	source := field(nil, 1, string(field(nil, 1, string(socket))))
	source = field(source, 4, a.principal)
	http := field(nil, 2, a.method)
	http = append(http, headers...)
	http = field(http, 4, a.path)
	http = field(http, 5, a.host)
	attributes := field(nil, 1, string(source))
	attributes = field(attributes, 4, string(field(nil, 2, string(http))))
	attributes = field(attributes, 10, pair("domain", a.domain))
	return field(nil, 1, string(attributes))
}

// headerMap writes headers one by one, as with encode_raw_headers.
func headerMap(headers [][2]string) []byte {
	var all []byte
	for _, h := range headers {
		all = field(all, 1, string(field(field(nil, 1, h[0]), 3, h[1])))
	}
	return field(nil, 13, string(all))
}

// joined writes headers as a map: names in lower case, several of one name joined by a comma.
func joined(headers [][2]string, value func(string) string) []byte {
	var names []string
	values := map[string]string{}
	for _, h := range headers {
		name := strings.ToLower(h[0])
		if before, again := values[name]; again {
			values[name] = before + "," + h[1]
			continue
		}
		names = append(names, name)
		values[name] = h[1]
	}
	var all []byte
	for _, name := range names {
		all = field(all, 3, pair(name, value(values[name])))
	}
	return all
}

// clean replaces what is not UTF-8, as Envoy does in the map.
func clean(value string) string {
	if utf8.ValidString(value) {
		return value
	}
	return strings.ToValidUTF8(value, "!")
}
