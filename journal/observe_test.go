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
