package descriptors

import (
	"net/url"
	"strings"
)

// Whose returns who a counter of this effect belongs to, read from the counter's key: each value that it counts by,
// under the name of its scope or, in a tree, of its descriptor key. A global counter has none. What the key holds
// hashed is returned as the hash.
func (e *Effect) Whose(key string) []Entry {
	_, rest, _ := strings.Cut(key, "{")
	who, rest, _ := strings.Cut(rest, ":")
	section, _, _ := strings.Cut(rest, ":")
	who, address := strings.CutSuffix(who, "~ip")
	values := strings.Split(strings.TrimSuffix(who, "}"), "|")[1:]
	separator := "+"
	if e.Tree {
		separator = "/"
	}
	names := strings.Split(section, separator)
	if len(names) != len(values) { // they were hashed as one
		names = []string{section}
	}
	entries := make([]Entry, 0, len(values))
	for i, name := range names[:min(len(names), len(values))] {
		if address && name == ScopeClient.String() {
			name = ScopeIP.String()
		}
		entries = append(entries, Entry{Key: plain(name), Value: plain(values[i])})
	}
	return entries
}

// plain undoes the escapes of a key's part.
func plain(part string) string {
	text, err := url.PathUnescape(part)
	if err != nil {
		return part
	}
	return text
}

// Origin returns where the effect was written: its rule, its node of a tree, or the limit of an account. It is the zero
// value for an override and for a domain's penalty.
func (e *Effect) Origin() Pos {
	switch {
	case e.from.rule != nil:
		return e.from.rule.Pos
	case e.from.node != nil:
		return e.from.node.Pos
	case e.from.limit != nil:
		return e.from.limit.Pos
	}
	return Pos{}
}

// Written returns what the domain was compiled from. It is not to be changed.
func (d *CompiledDomain) Written() *Domain { return d.written }

// Spelled returns a text that a pattern of a rule file matches: an endpoint's, a key's or a value's of a tree.
func Spelled(pattern string) string { return spellOut(pattern) }
