package keys

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
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

// TestKeysKeepTheirCounter: a limit that is raised or gets another window keeps its key, another algorithm does not.
func TestKeysKeepTheirCounter(t *testing.T) {
	base := limit.Limit{Algorithm: limit.TokenBucket, Count: 5, Window: time.Minute}
	raised, other := base, base
	raised.Count, raised.Window = 10, time.Hour
	other.Algorithm = limit.SlidingWindow
	if Tail(base, 0) != Tail(raised, 0) {
		t.Error("a raised limit starts afresh")
	}
	if Tail(base, 0) == Tail(other, 0) {
		t.Error("another algorithm finds the state of the first")
	}
}
