package keys

import (
	"net/url"
	"strings"
)

// Counter is the key of a counter, taken apart. Its texts are as the key has them; Plain undoes their escapes.
type Counter struct {
	Head    string   // the prefix, the schema and the domain, with which all keys of a domain begin
	Values  []string // that it counts by
	By      string   // a scope, or the path of a tree
	Address bool     // the client that it counts by is an address
}

// Read takes the key of a counter apart.
func Read(key string) (c Counter) {
	tag := strings.IndexByte(key, '{') + 1
	who, rest, _ := strings.Cut(key[tag:], ":")
	who, c.Address = strings.CutSuffix(who, "~ip")
	values := strings.Split(strings.TrimSuffix(who, "}"), "|")
	c.Head, c.Values = key[:tag]+strings.TrimSuffix(values[0], "}~"), values[1:]
	c.By, _, _ = strings.Cut(rest, ":")
	return c
}

// Plain undoes the escapes of a part of a key. A hash stays as it is.
func Plain(part string) string {
	text, err := url.PathUnescape(part)
	if err != nil {
		return part
	}
	return text
}
