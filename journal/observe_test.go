package journal

import "testing"

// TestWhatAnEventHasOfAnAPIKey: a key itself is never readable, and an id is where names are plain.
func TestWhatAnEventHasOfAnAPIKey(t *testing.T) {
	plain := func(kind, value string) string { return kind + ":" + value }
	hidden := func(kind, value string) string { return kind + ":hidden" }
	for _, c := range []struct {
		name  func(kind, value string) string
		value string
		isID  bool
		want  string
	}{
		{plain, "ann-1", true, "ann-1"}, {hidden, "ann-1", true, "key:hidden"}, {plain, "", true, ""},
		{plain, "spw_A", false, "key:" + KeyOf("spw_A")}, {hidden, "spw_A", false, "key:hidden"},
	} {
		n := names{name: c.name}
		if got := n.key([]byte(c.value), c.isID); got != c.want {
			t.Errorf("of %q, an id %v: %q, want %q", c.value, c.isID, got, c.want)
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
