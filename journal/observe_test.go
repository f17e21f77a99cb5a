package journal

import (
	"testing"

	"github.com/spillway-mesh/spillway/descriptors"
)

// secretKey is an API key.
const secretKey = "spw_ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// TestWhatIsShownOfAnAPIKey: never so much that the rest could be guessed.
func TestWhatIsShownOfAnAPIKey(t *testing.T) {
	for value, want := range map[string]string{secretKey: "spw_ABCDEF", "short-secret": "shor", "ab": "", "": ""} {
		asked := descriptors.Asked{APIKey: value}
		if got := shownKey(&descriptors.Request{}, nil, &asked); got != want {
			t.Errorf("of %q: %q, want %q", value, got, want)
		}
	}
}

// TestSampledEventsStandForTheOthers: their weights add up to about what was decided.
func TestSampledEventsStandForTheOthers(t *testing.T) {
	c := newCollector(10)
	const n = 20_000
	weight := int64(0)
	for range n {
		weight += c.weight(false)
	}
	if weight < n*8/10 || weight > n*12/10 {
		t.Errorf("events of %d requests stand for %d", n, weight)
	}
	if c.oneIn = 0; c.weight(false) != 0 || c.weight(true) != 1 {
		t.Error("without samples refusals alone are events")
	}
}
