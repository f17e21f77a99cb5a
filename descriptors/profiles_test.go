package descriptors

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/spillway-mesh/spillway/identity"
)

// Profiles are cached, and outlive rule sets. A set that is kept keeps its resolver, too, whose key sets are loaded for
// ever.
func TestAProfileDoesNotKeepARuleSetThatWasReplaced(t *testing.T) {
	const reloads = 20
	var cached []*Profile
	var sets []weak.Pointer[CompiledDomain]
	for n := range reloads {
		set, _ := Compile([]Domain{{Name: "shop"}}, Options{})
		sets = append(sets, weak.Make(set.Domain("shop")))
		r := &Profile{ID: identity.ID{Kind: identity.UserID, Name: fmt.Sprint("user-", n)}, Blocked: true}
		cached = append(cached, r)
		var m Match
		set.Match(&Request{Domain: "shop", Profiles: &Profiles{User: r},
			Descriptors: []Descriptor{{Entries: []Entry{{"user", r.Name}}}}}, &m)
		if m.Block == nil {
			t.Fatalf("%s is not blocked", r.Name)
		}
	}
	alive := reloads
	for end := time.Now().Add(time.Minute); alive > 1 && time.Now().Before(end); {
		runtime.GC()
		alive = 0
		for _, s := range sets {
			if s.Value() != nil {
				alive++
			}
		}
	}
	runtime.KeepAlive(cached)
	if alive > 1 {
		t.Errorf("after %d reloads %d rule sets are in memory that nothing uses", reloads, alive)
	}
}
