package control

import (
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/engine"
)

// TestRefusingOutcomesAreTheEngines compares the words of outcomes that did not pass with the engine's. What shadow mode lets pass was admitted.
func TestRefusingOutcomesAreTheEngines(t *testing.T) {
	var want []string
	for o := range engine.Outcomes {
		if o.Refuses() && o != engine.Shadowed {
			want = append(want, o.String())
		}
	}
	if !slices.Equal(want, refusing) {
		t.Errorf("the control takes %v for refusals, the engine %v", refusing, want)
	}
}
