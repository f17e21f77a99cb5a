package descriptors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/keys"
	"github.com/spillway-mesh/spillway/limit"
)

// keyMaker makes the keys of one kind from a list of entries.
type keyMaker struct {
	name string
	make func(b []byte, entries []Entry) []byte
}

// keyMakers cover trees, overrides and scopes, with and without a secret, and co-located or not.
func keyMakers() []keyMaker {
	var makers []keyMaker
	for _, secret := range []string{"", "secret"} {
		for _, coLocate := range []bool{false, true} {
			makers = append(makers, domainKeyMakers(secret, coLocate)...)
		}
	}
	return makers
}

func domainKeyMakers(secret string, coLocate bool) []keyMaker {
	d := &CompiledDomain{naming: naming{keys: keys.NewWriter([]byte(secret))}}
	d.head, d.seal = keys.Head("", "shop", coLocate)
	kind := fmt.Sprintf(" secret %q co-located %t", secret, coLocate)
	var s scratch
	// A path of key patterns takes every entry as it comes, which is the widest a tree can be.
	any := &node{key: "*", keyGlob: true}
	tree := &node{path: []*node{any, any, any, any, any, any}}
	return []keyMaker{
		{"override" + kind, func(b []byte, entries []Entry) []byte {
			d.appendTreeHead(&s, nil, entries)
			return append(b, s.key...)
		}},
		{"tree" + kind, func(b []byte, entries []Entry) []byte {
			d.appendTreeHead(&s, tree, entries)
			return append(b, s.key...)
		}},
		{"scopes" + kind, func(b []byte, entries []Entry) []byte {
			s.values = s.values[:0]
			for _, e := range entries {
				s.values = append(s.values, keys.Value{Text: e.Key}, keys.Value{Text: e.Value})
			}
			return append(d.keys.AppendValues(append(b, d.head...), s.values), d.seal...)
		}},
	}
}

var keyAlphabet = []string{"_", ":", "{", "}", "\x00", "|", "%", "#", "/", "*", "~", "a", "1", "ä", "\xff", "%7C", "##",
	"a|b"}

func randomPart(r *rand.Rand) string {
	switch r.IntN(12) {
	case 0, 1:
		return ""
	case 2:
		return strings.Repeat(keyAlphabet[r.IntN(len(keyAlphabet))], 40+r.IntN(60))
	}
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString(keyAlphabet[r.IntN(len(keyAlphabet))])
	}
	return b.String()
}

func randomEntries(r *rand.Rand) []Entry {
	entries := make([]Entry, 1+r.IntN(4))
	for i := range entries {
		entries[i] = Entry{randomPart(r), randomPart(r)}
	}
	return entries
}

// neighbour returns a list that an encoding could easily take for the same: a byte moved over a boundary, two parts
// merged, a part escaped by hand, an empty entry more.
func neighbour(r *rand.Rand, entries []Entry) []Entry {
	out := append([]Entry(nil), entries...)
	i := r.IntN(len(out))
	e := out[i]
	separators := []string{"_", "|", ":", "/", "%", "", "}", "#", "*"}
	separator := separators[r.IntN(len(separators))]
	switch r.IntN(7) {
	case 0:
		out[i] = Entry{e.Key + separator + e.Value, ""}
	case 1:
		out[i] = Entry{"", e.Key + separator + e.Value}
	case 2:
		if e.Key != "" {
			out[i] = Entry{e.Key[:len(e.Key)-1], e.Key[len(e.Key)-1:] + e.Value}
		}
	case 3:
		out = append(out, Entry{})
	case 4:
		if i > 0 {
			out[i-1].Value += separator + e.Key + separator + e.Value
			out = append(out[:i], out[i+1:]...)
		}
	case 5:
		out[i].Value = string(keys.AppendPart(nil, e.Value))
	case 6:
		j := r.IntN(len(out))
		out[i].Value, out[j].Value = out[j].Value, out[i].Value
	}
	return out
}

// plainIdentity is an encoding whose injectivity needs no argument: every length stands before its text.
func plainIdentity(b []byte, entries []Entry) []byte {
	for _, e := range entries {
		b = binary.BigEndian.AppendUint64(b, uint64(len(e.Key)))
		b = append(b, e.Key...)
		b = binary.BigEndian.AppendUint64(b, uint64(len(e.Value)))
		b = append(b, e.Value...)
	}
	return b
}

// TestKeysNeverMeet compares over a million pairs of descriptor lists, half of them made to look alike.
func TestKeysNeverMeet(t *testing.T) {
	const pairs = 100_000 / divisor // for each of twelve kinds of key
	for _, maker := range keyMakers() {
		r := rand.New(rand.NewPCG(1, 2))
		var one, other, first, second []byte
		for i := range pairs {
			a := randomEntries(r)
			b := neighbour(r, a)
			if i%2 == 0 {
				b = randomEntries(r)
			}
			first, second = plainIdentity(first[:0], a), plainIdentity(second[:0], b)
			one, other = maker.make(one[:0], a), maker.make(other[:0], b)
			if bytes.Equal(first, second) != bytes.Equal(one, other) {
				t.Fatalf("%s: %q and %q have the keys %q and %q", maker.name, a, b, one, other)
			}
		}
	}
}

// TestKeysHaveOneHashTag is about every key that a client could shape.
func TestKeysHaveOneHashTag(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, maker := range keyMakers() {
		for range 5_000 / divisor {
			entries := randomEntries(r)
			key := string(maker.make(nil, entries))
			if strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 {
				t.Fatalf("%s: %q has the key %q", maker.name, entries, key)
			}
			if len(key) > 2*keys.MaxSection {
				t.Fatalf("%s: a key of %d bytes", maker.name, len(key))
			}
		}
	}
}

// TestManyEntriesMakeShortKeys is about overrides, whose depth no configuration bounds.
func TestManyEntriesMakeShortKeys(t *testing.T) {
	entries := make([]Entry, 50_000)
	for i := range entries {
		entries[i] = Entry{"key", "value"}
	}
	d := &CompiledDomain{}
	d.head, d.seal = keys.Head("", "shop", false)
	var s scratch
	d.appendTreeHead(&s, nil, entries)
	long := string(s.key)
	if len(long) > 2*keys.MaxSection {
		t.Fatalf("a key of %d bytes", len(long))
	}
	entries[49_999].Value = "other"
	d.appendTreeHead(&s, nil, entries)
	if string(s.key) == long {
		t.Fatal("the last entry makes no difference")
	}
}

// TestKeysKeepTheirCounter: a limit that is raised or gets another window keeps its key, another algorithm does not.
func TestKeysKeepTheirCounter(t *testing.T) {
	base := limit.Limit{Algorithm: limit.TokenBucket, Count: 5, Window: time.Minute}
	raised, other := base, base
	raised.Count, raised.Window = 10, time.Hour
	other.Algorithm = limit.SlidingWindow
	if limitTail(base, 0) != limitTail(raised, 0) {
		t.Error("a raised limit starts afresh")
	}
	if limitTail(base, 0) == limitTail(other, 0) {
		t.Error("another algorithm finds the state of the first")
	}
}

// FuzzKey looks for two lists of entries that share a key.
func FuzzKey(f *testing.F) {
	f.Add("a", "b_c", "a_b", "c")
	f.Add("a|b", "", "a", "b")
	f.Add("{", "}", "%7B", "%7D")
	f.Add("#", strings.Repeat("x", 65), "*", "~")
	makers := keyMakers()
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		lists := [][]Entry{{{a, b}}, {{c, d}}, {{a, b}, {c, d}}, {{a, d}, {c, b}}, {{a + c, b + d}}}
		for _, maker := range makers {
			for i, one := range lists {
				for _, other := range lists[:i] {
					same := bytes.Equal(plainIdentity(nil, one), plainIdentity(nil, other))
					if bytes.Equal(maker.make(nil, one), maker.make(nil, other)) != same {
						t.Errorf("%s: %q and %q share a key", maker.name, one, other)
					}
				}
			}
		}
	})
}

// BenchmarkKey encodes the key of a rule by user and endpoint.
func BenchmarkKey(b *testing.B) {
	d := &CompiledDomain{}
	d.head, d.seal = keys.Head("", "shop", false)
	r := &compiledRule{scope: ScopeUser | ScopeEndpoint}
	var s scratch
	s.attrs.text[attrUser], s.attrs.text[attrEndpoint] = "alice@example.com", "/api/v1/orders"
	b.ReportAllocs()
	for b.Loop() {
		d.appendRuleHead(&s, r, nil)
		s.key = append(s.key, ":user+endpoint:orders:1:tb"...)
		keySink = string(s.key)
	}
}

var keySink string
