package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/httpapi"
)

// browse asks the debug port as a browser does.
func browse(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	debug(noRules, oneLine).ServeHTTP(w, r)
	return w
}

func TestThePageIsKeptToItself(t *testing.T) {
	for path, kind := range map[string]string{"/": "text/html", "/page/page.css": "text/css",
		"/page/page.js": "text/javascript"} {
		w := browse("GET", path)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s = %d %v", path, w.Code, w.Header())
		}
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "connect-src 'self'",
			"frame-ancestors 'none'", "form-action 'none'", "trusted-types 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s", path, part)
			}
		}
		if again := browse("GET", path, "If-None-Match",
			w.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("GET %s again = %d with %d bytes, want 304", path, again.Code, again.Body.Len())
		}
		if posted := browse("POST", path); posted.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s = %d, want 405", path, posted.Code)
		}
	}
	if w := browse("GET", "/page/other.js"); w.Code != 404 {
		t.Errorf("GET /page/other.js = %d, want 404", w.Code)
	}
}

func TestThePageLinksToWhatThePortServes(t *testing.T) {
	page := browse("GET", "/").Body.String()
	_, list := get(debug(noRules, oneLine), "/")
	for _, path := range []string{"/rlconfig", "/rules.schema.json", "/stats", "/metrics", "/loglevel",
		"/v1/openapi.json", "/debug/pprof/"} {
		if !strings.Contains(page, `href="`+path+`"`) {
			t.Errorf("the page has no link to %s", path)
		}
		if !strings.Contains(list, path) {
			t.Errorf("the list for programs lacks %s:\n%s", path, list)
		}
	}
}

// manyDecisions are those of 1,200 rules.
func manyDecisions() StatsView {
	view := StatsView{Degraded: []string{}, Store: StoreView{Kind: "memory"}}
	for i := range 1200 {
		view.Decisions = append(view.Decisions, DecisionsView{"shop", fmt.Sprintf("r%d", i),
			map[string]int64{"allowed": int64(i), "refused": 1}})
	}
	return view
}

func TestStatsAreBoundedAndTheirSumsAreWhole(t *testing.T) {
	a, _ := apiOf(t, httpapi.Access{Local: httpapi.Operate})
	h := a.Operations().Handler()
	for path, want := range map[string]int{"/v1/stats": 100, "/v1/stats?limit=7": 7, "/v1/stats?limit=1000": 1000} {
		code, body := send(h, here, "GET", path, "")
		var view StatsView
		err := json.Unmarshal([]byte(body), &view)
		if err != nil || code != 200 {
			t.Fatalf("GET %s = %d %s", path, code, body)
		}
		if len(view.Decisions) != want || view.LeftOut != 1200-want || view.Decisions[0].Rule != "r1199" {
			t.Errorf("%s lists %d rules, the first %v, and leaves out %d", path, len(view.Decisions),
				view.Decisions[0], view.LeftOut)
		}
		if view.Outcomes["refused"] != 1200 || view.Outcomes["allowed"] != 1199*600 {
			t.Errorf("%s: the sums are %v", path, view.Outcomes)
		}
		if view.Caller != (CallerView{"local", "operate", true}) || view.Rules != "abc" {
			t.Errorf("%s: %+v", path, view.Caller)
		}
	}
	for _, limit := range []string{"0", "1001", "x", ""} {
		if code, body := send(h, here, "GET", "/v1/stats?limit="+limit, ""); code != 400 {
			t.Errorf("limit %q: %d %s, want 400", limit, code, body)
		}
	}
}
