package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/test/must"
)

// asked sends a request with a body of JSON, and returns the status and the text of the answer.
func asked(t *testing.T, server *httptest.Server, method, path, body string) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	answer := must.Get(http.DefaultClient.Do(request))(t)
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(text)
}

// TestWhatCannotBeKeptIsRefused sends rules that are too long, and times whose year has five digits or none in UTC. All
// are problems of the caller.
func TestWhatCannotBeKeptIsRefused(t *testing.T) {
	d := migrated(t)
	run(t, d, `INSERT INTO users (domain, name, updated_by) VALUES ('shop', 'ann', 'test')`)
	server := serving(t, d)
	long := must.Get(json.Marshal(map[string]string{"text": "domain: shop\n" + strings.Repeat("# ten bytes\n",
		database.MaxTextBytes/10)}))(t)
	const shop, late, early = "/v1/domains/shop", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00%2B12:00"
	limits := func(count int) string {
		return `"limits": [` + strings.TrimSuffix(strings.Repeat(`{"count": 5, "per": "1m"},`, count), ",") + "]"
	}
	for _, one := range []struct {
		method, path, body string
		want               int
	}{
		{"PUT", shop + "/blocks/ip/0.0.0.0/0", `{}`, 422},
		{"PUT", shop + "/blocks/ip/10.0.0.0/7", `{}`, 422},
		{"PUT", shop + "/blocks/ip/10.0.0.0/8", `{}`, 201},
		{"PUT", shop + "/blocks/ip/::/0?wide=no", `{}`, 400},
		{"PUT", shop + "/blocks/ip/2001::/31", `{}`, 422},
		{"PUT", shop + "/blocks/ip/::ffff:0:0/96", `{}`, 422},
		{"PUT", shop + "/blocks/ip/2001:db8::/32", `{}`, 201},
		{"PUT", shop + "/blocks/ip/::/0?wide=true", `{}`, 201},
		{"PUT", shop + "/blocks/ip/::/0?wild=true", `{}`, 400},
		{"PUT", shop + "/tiers/most", "{" + limits(16) + "}", 201},
		{"PUT", shop + "/tiers/more", "{" + limits(17) + "}", 422},
		{"POST", shop + "/keys", `{"id": "most", "user": "ann", ` + limits(16) + "}", 201},
		{"POST", shop + "/keys", `{"id": "more", "user": "ann", ` + limits(17) + "}", 422},
		{"POST", shop + "/versions", string(long), 413},
		{"PUT", shop + "/blocks/user/ann", `{"until": "` + late + `"}`, 422},
		{"PUT", shop + "/blocks/tenant/acme", `{"until": "` + late + `"}`, 422},
		{"PUT", shop + "/blocks/tenant/acme", `{"until": "9999-12-31T23:59:59Z"}`, 201},
		{"POST", shop + "/keys", `{"id": "k", "user": "ann", "expires_at": "` + late + `"}`, 422},
		{"GET", shop + "/statistics?step=total&to=" + late, "", 422},
		{"GET", shop + "/statistics?step=total&to=9999-12-31", "", 200},
		{"GET", shop + "/usage?from=9999-12-31&to=" + late, "", 422},
		{"GET", shop + "/caches?from=9999-12-31&to=" + late, "", 422},
		{"GET", shop + "/events?to=" + late, "", 422},
		{"GET", shop + "/statistics?step=total&from=" + early, "", 422},
		{"GET", shop + "/statistics?to=0001-01-01", "", 422},
		{"GET", shop + "/statistics?to=0001-01-02", "", 200},
	} {
		got, text := asked(t, server, one.method, one.path, one.body)
		if got != one.want {
			t.Errorf("%s %s: %d %.200s, want %d", one.method, one.path, got, text, one.want)
		}
	}
}
