package limit

import (
	"slices"
	"testing"
)

// TestTheFateOfARequestMayComeAfterItsReply: the reply comes while the policies still decide.
func TestTheFateOfARequestMayComeAfterItsReply(t *testing.T) {
	var fate Fate
	var seen []string
	reply := func(key string) *Request { return &Request{Charges: []Charge{{Key: key}}} }
	fate.Reply(reply("a"))
	fate.Compare(func(r *Request) { seen = append(seen, r.Charges[0].Key) })
	fate.Reply(reply("b"))
	(*Fate)(nil).Reply(reply("c"))
	if !slices.Equal(seen, []string{"a", "b"}) {
		t.Errorf("compared %q, want a and b", seen)
	}
}
