package publish

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/spillway-mesh/spillway/records"
)

func named(name string) records.Identity {
	return records.Identity{Domain: "shop", Kind: records.User, Name: name}
}

// TestChangesGoBeforePages lets pages and changes wait for one that writes: changes come first, in whatever order they came to wait.
func TestChangesGoBeforePages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, hold := newTurns(), make(chan struct{})
		var order []string // one writes at a time
		go turns.change(nil, func() error { <-hold; return nil })
		synctest.Wait()
		for _, what := range []string{"page", "change", "page", "page", "change", "page"} {
			go func() {
				note := func() error { order = append(order, what); return nil }
				if what == "change" {
					turns.change(nil, note)
					return
				}
				began := turns.begin()
				defer turns.end(began)
				turns.write(began, nil, func([]*records.Difference) error { return note() })
			}()
			synctest.Wait()
		}
		close(hold)
		synctest.Wait()
		if want := []string{"change", "change", "page", "page", "page", "page"}; !slices.Equal(order, want) {
			t.Errorf("they wrote in the order %v, want %v", order, want)
		}
	})
}

// TestAPageLeavesOutWhatWasChangedSince begins pages before, between and after two changes.
func TestAPageLeavesOutWhatWasChangedSince(t *testing.T) {
	turns := newTurns()
	change := func(name string) {
		err := turns.change([]records.Identity{named(name)}, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	change("zoe")
	if len(turns.changed) > 0 {
		t.Errorf("without a page, %d changes are kept", len(turns.changed))
	}
	first := turns.begin()
	change("ann")
	second := turns.begin()
	change("ben")
	third := turns.begin()
	for _, c := range []struct {
		page uint64
		want []string
	}{{first, []string{"cem"}}, {second, []string{"ann", "cem"}}, {third, []string{"ann", "ben", "cem"}}} {
		var found []*records.Difference
		for _, name := range []string{"ann", "ben", "cem"} {
			found = append(found, &records.Difference{Wanted: &records.Wanted{Identity: named(name)}})
		}
		var wrote []string
		_ = turns.write(c.page, found, func(left []*records.Difference) error {
			for _, d := range left {
				wrote = append(wrote, d.Identity.Name)
			}
			return nil
		})
		if !slices.Equal(wrote, c.want) {
			t.Errorf("page %d wrote %v, want %v", c.page, wrote, c.want)
		}
	}
	turns.end(first)
	if len(turns.changed) != 1 {
		t.Errorf("after the end of the first page %d changes are kept, want 1", len(turns.changed))
	}
	turns.end(third)
	turns.end(second)
	if len(turns.changed)+len(turns.pages) > 0 {
		t.Errorf("after all pages %d changes and %d pages are kept", len(turns.changed), len(turns.pages))
	}
}
