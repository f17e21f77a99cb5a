package profiles

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestClassesOfManyRecords: each class is named once, with the end of the record that ends last, in any order of
// records.
func TestClassesOfManyRecords(t *testing.T) {
	soon, late := time.Unix(1000, 0).UTC(), time.Unix(2000, 0).UTC()
	record := func(domain string, kind Kind, r *Record) Swap {
		id := Identity{Domain: domain, Kind: kind, Name: "ann"}
		if kind == Network {
			id.Name, id.Network = "", netip.MustParsePrefix("192.0.2.0/24")
		}
		return Swap{Identity: id, Record: r}
	}
	lasting := &Record{Tier: "gold"}
	ends := func(at time.Time) *Record { return &Record{Block: &Block{Until: at}} }
	found := []Swap{
		record("shop", User, lasting), record("shop", User, ends(soon)), record("mail", User, ends(soon)),
		record("mail", User, ends(late)),
		record("shop", APIKey, lasting), record("shop", Network, ends(late)), record("shop", Network, ends(soon)),
		record("maps", User, nil),
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
