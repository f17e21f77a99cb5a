package profiles

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestClassesOfManyProfiles: each class is named once, with the end of the profile that ends last, in any order of
// profiles.
func TestClassesOfManyProfiles(t *testing.T) {
	soon, late := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	profile := func(domain string, kind Kind, r *Profile) Swap {
		id := Identity{Domain: domain, Kind: kind, Name: "ann"}
		if kind == Network {
			id.Name, id.Network = "", netip.MustParsePrefix("192.0.2.0/24")
		}
		return Swap{Identity: id, Profile: r}
	}
	lasting := &Profile{Tier: "gold"}
	ends := func(at time.Time) *Profile { return &Profile{Block: &Block{Until: at}} }
	found := []Swap{
		profile("shop", User, lasting), profile("shop", User, ends(soon)), profile("mail", User, ends(soon)),
		profile("mail", User, ends(late)),
		profile("shop", APIKey, lasting), profile("shop", Network, ends(late)), profile("shop", Network, ends(soon)),
		profile("maps", User, nil),
	}
	want := map[string]time.Time{"shop|user": {}, "mail|user": late, "shop|api_key": {}, "shop|ip4/24": late}
	all := []string{"mail|user", "maps|user", "shop|api_key", "shop|ip4/24", "shop|user"}
	for range 2 {
		if got := classesOf(found); !maps.Equal(got, want) {
			t.Errorf("the classes are %v, want %v", got, want)
		}
		var ids []Identity
		for _, one := range found {
			ids = append(ids, one.Identity)
		}
		if got := ClassesOf(ids); !slices.Equal(got, all) {
			t.Errorf("all classes are %v, want %v", got, all)
		}
		slices.Reverse(found)
	}
}
