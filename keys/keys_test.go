package keys

import (
	"strings"
	"testing"
)

// TestHashedSectionNeverMeetsHashedPart: a client that sends the text of a long section as one value gets another key.
func TestHashedSectionNeverMeetsHashedPart(t *testing.T) {
	var k Writer
	parts := make([]Value, 20)
	texts := make([]string, 20)
	for i := range parts {
		texts[i] = strings.Repeat("a", 40)
		parts[i].Text = texts[i]
	}
	section := string(k.AppendValues(nil, parts))
	part := string(k.AppendValues(nil, []Value{{Text: strings.Join(texts, "|")}}))
	if section == part {
		t.Errorf("20 values and one share %q", part)
	}
}

// TestSharedNeverMeetsLiteral: what a client sends is never taken for the pattern that others share.
func TestSharedNeverMeetsLiteral(t *testing.T) {
	for _, secret := range []string{"", "secret"} {
		k := NewWriter([]byte(secret))
		shared := string(k.AppendValues(nil, []Value{{Text: "a*", Shared: true}}))
		for _, literal := range []string{"a*", "*a*", "*a%2A", "a%2A", "**"} {
			if string(k.AppendValues(nil, []Value{{Text: literal}})) == shared {
				t.Errorf("%q meets the shared a*, secret %q", literal, secret)
			}
		}
	}
}

// TestLimitPart: names and places never meet.
func TestLimitPart(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"1", "01", "~1", "%1", "#1", "a", "a:b", "10", strings.Repeat("x", 65), "é"} {
		seen[limitPart(name, 0)] = true
	}
	for place := range 12 {
		seen[limitPart("", place)] = true
	}
	if len(seen) != 22 {
		t.Errorf("%d different parts of 22: %v", len(seen), seen)
	}
}
