package journal

import (
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestALongIdentityHasAName: a client that sends a long name of its own is counted by it, and apart from others that
// begin alike.
func TestALongIdentityHasAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server redis
		r := server.record(1)
		long := strings.Repeat("é", 40_000)
		for _, identity := range []string{long, long, long + "x", strings.Repeat("a", maxValue),
			strings.Repeat("a", maxValue+1)} {
			decide(r, identity, false)
		}
		server.set(false, false)
		if lost := r.Close(); lost != 0 {
			t.Errorf("%d rows were lost", lost)
		}
		s := server.copy(t)
		want := map[string]int64{
			"user:" + Short(long): 2, "user:" + Short(long+"x"): 1, "user:" +
				strings.Repeat("a", maxValue): 1, "user:" + Short(strings.Repeat("a", maxValue+1)): 1,
		}
		if diff := cmp.Diff(want, s.identities); diff != "" {
			t.Errorf("the usage by identity (-want +got):\n%s", diff)
		}
		if name := Short(long); len(name) > 200 || !utf8.ValidString(name) || !strings.HasPrefix(name, "éé") ||
			name == Short(long+"x") {
			t.Errorf("the name is %q", name)
		}
		if s.events != 5 || s.dropped != 0 {
			t.Errorf("%d events, %d dropped", s.events, s.dropped)
		}
	})
}
