package redis

import (
	"slices"
	"testing"
)

// TestServersOfTheMapOfSlots has hosts that are known, that are not, and that are in the list of metadata.
func TestServersOfTheMapOfSlots(t *testing.T) {
	for _, c := range []struct {
		want   string
		server []any
	}{
		{"10.0.0.1:7000", []any{"10.0.0.1", int64(7000), "id"}},
		{"10.0.0.9:7000", []any{nil, int64(7000), "id"}},
		{"10.0.0.9:7000", []any{"?", int64(7000), "id", []any{}}},
		{"10.0.0.2:7000", []any{"?", int64(7000), "id", []any{"shard", "x", "ip", "10.0.0.2"}}},
	} {
		first, last, got, copies := slotRow([]any{int64(3), int64(5), c.server, c.server, []any{}}, "10.0.0.9:1")
		if first != 3 || last != 5 || got != c.want || !slices.Equal(copies, []string{c.want, ""}) {
			t.Errorf("%v is %d, %d, %q with replicas %q; want %q", c.server, first, last, got, copies, c.want)
		}
	}
	for _, broken := range []any{"row", nil, []any{int64(1)}, []any{int64(0), int64(1)}, []any{"0", "1", []any{"h"}}} {
		_, _, got, _ := slotRow(broken, "")
		if got != "" {
			t.Errorf("%v has the master %q", broken, got)
		}
	}
}
