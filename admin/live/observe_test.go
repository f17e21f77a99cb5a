package live

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
)

// TestAnEventTellsOfTheRequestThatWasSent: in the order of its entries and with each of its descriptors, so that it can
// be explained.
func TestAnEventTellsOfTheRequestThatWasSent(t *testing.T) {
	sent := []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: "zone", Value: "z"}, {Key: "app", Value: "a"}}},
		{Entries: []descriptors.Entry{{Key: "zone", Value: "other"}}},
	}
	var e Event
	describe(&e, sent)
	want := []Descriptor{{Entries: []Entry{{Key: "zone", Value: "z"}, {Key: "app", Value: "a"}}},
		{Entries: []Entry{{Key: "zone", Value: "other"}}}}
	if diff := cmp.Diff(want, e.Descriptors); diff != "" {
		t.Errorf("descriptors (-want +got):\n%s", diff)
	}
	for i := range maxEntries {
		sent[1].Entries = append(sent[1].Entries, descriptors.Entry{Key: fmt.Sprint("k", i)})
	}
	e = Event{}
	describe(&e, sent)
	if len(e.Descriptors) > 0 || len(e.Entries) != maxEntries-1 {
		t.Errorf("of too many entries %d are shown, and %d descriptors", len(e.Entries), len(e.Descriptors))
	}
}
