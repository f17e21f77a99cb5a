package redis

import "testing"

// TestServersOfTheMapOfSlots has hosts that are known, that are not, and that are told beside.
func TestServersOfTheMapOfSlots(t *testing.T) {
	for _, c := range []struct {
		want  string
		reply []any
	}{
		{"10.0.0.1:7000", []any{"10.0.0.1", int64(7000), "id"}},
		{"10.0.0.9:7000", []any{nil, int64(7000), "id"}},
		{"10.0.0.9:7000", []any{"?", int64(7000), "id", []any{}}},
		{"10.0.0.2:7000", []any{"?", int64(7000), "id", []any{"shard", "x", "ip", "10.0.0.2"}}},
	} {
		if got := slotMaster(c.reply, "10.0.0.9:1"); got != c.want {
			t.Errorf("%v is %q; want %q", c.reply, got, c.want)
		}
	}
	for _, broken := range [][]any{
		{"row"}, {[]any{int64(1)}}, {[]any{int64(0), int64(1), []any{"h"}}}, {[]any{"0", int64(1), []any{"h", int64(1)}}},
	} {
		_, err := slotRanges(broken, "")
		if err == nil {
			t.Errorf("%v is taken for a map", broken)
		}
	}
}
