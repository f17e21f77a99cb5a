package api

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestUsersByTheirLastRequestInPages reads the list by its cursor. Users who are removed once they are listed do not
// end it. What cannot be a cursor of this order is refused.
func TestUsersByTheirLastRequestInPages(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO users (domain, name, last_request_at) VALUES ('shop', 'a.b', '2026-11-03T01:02:03.456789Z'),
	  ('shop', 'c', '2026-11-03T01:02:03.456788Z'), ('shop', 'e', NULL), ('shop', 'd', NULL)`)
	server := serving(t, d)
	const path = "/v1/domains/shop/users?limit=1&by=last-request"
	var names []string
	for at, more := path, true; more; {
		status, text := asked(t, server, "GET", at, "")
		var page struct {
			Users []struct{ Name string }
			Next  string
		}
		must.Do(t, json.Unmarshal([]byte(text), &page))
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", at, status, text)
		}
		for _, u := range page.Users {
			names = append(names, u.Name)
			run(t, d, `DELETE FROM users WHERE name = '`+u.Name+`'`)
		}
		at, more = path+"&cursor="+url.QueryEscape(page.Next), page.Next != ""
	}
	if want := []string{"a.b", "c", "e", "d"}; !slices.Equal(names, want) {
		t.Errorf("the users are %q, want %q", names, want)
	}
	for _, wrong := range []string{
		"by=last-request&cursor=ann", "by=last-request&cursor=-1.ann",
		"by=last-request&cursor=99999999999999999999.ann", "by=last-request&after=ann", "cursor=never.ann",
	} {
		status, text := asked(t, server, "GET", "/v1/domains/shop/users?"+wrong, "")
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s, want 422", wrong, status, text)
		}
	}
}
