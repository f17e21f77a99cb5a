package admin

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/store/memory"
	"github.com/spillway-mesh/spillway/test/must"
)

// apiOf makes an API over one domain, without Redis.
func apiOf(t *testing.T, access httpapi.Access) (*API, *strings.Builder) {
	t.Helper()
	d, problems := rules.Decode("rules.yaml",
		[]byte("domain: shop\nrules:\n  - {name: each, scope: user, limit: 5/1h}\n"))
	set, _ := descriptors.Compile([]descriptors.Domain{d}, descriptors.Options{})
	if set == nil {
		t.Fatal(rules.FormatProblems(problems))
	}
	e := engine.New(engine.Config{Store: memory.New(memory.Config{})})
	t.Cleanup(func() { e.Close() })
	e.Use(set)
	log := new(strings.Builder)
	return &API{
		Access: access, Engine: e, Profiles: profiles.New(profiles.Config{}),
		Log:   slog.New(slog.NewTextHandler(log, nil)),
		InUse: func() InUse { return InUse{Hash: "abc"} }, Config: func() ConfigView { return ConfigView{} },
		Counted: manyDecisions, Events: new(live.Feed), EventsRole: httpapi.Operate,
	}, log
}

// send sends a request to an API as if it came from an address.
func send(h http.Handler, from, method, path, body string, headers ...string) (int, string) {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.RemoteAddr = from
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	here  = "127.0.0.1:1234"
	there = "192.0.2.1:1234"
)

func TestWithoutCredentialsTheAPIAnswersThisMachineOnly(t *testing.T) {
	a, _ := apiOf(t, httpapi.Access{Local: httpapi.Operate})
	h := a.Operations().Handler()
	for _, c := range []struct {
		from string
		want int
		with []string
	}{
		{here, 200, nil}, {there, 403, nil}, {here, 403, []string{"Sec-Fetch-Site", "cross-site"}}, {here, 403,
			[]string{"Origin", "http://evil.example"}},
	} {
		code, body := send(h, c.from, "POST", "/v1/block", `{"user":"mallory"}`, c.with...)
		if code != c.want {
			t.Errorf("from %s with %v: %d %s, want %d", c.from, c.with, code, body, c.want)
		}
	}
	for site, want := range map[string]int{"same-origin": 200, "none": 200, "same-site": 403, "cross-site": 403} {
		if code, body := send(h, here, "GET", "/v1/rules", "", "Sec-Fetch-Site", site); code != want {
			t.Errorf("a page that is %s reads: %d %s, want %d", site, code, body, want)
		}
	}
	r := httptest.NewRequest("GET", "http://rebound.example/v1/rules", nil)
	r.RemoteAddr = here
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("under a name that leads here: %d, want 403", w.Code)
	}
}

func TestTokensHaveRoles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	err := os.WriteFile(file, []byte("# who\nview vera 0123456789abcdef\n\noperate olga fedcba9876543210\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	tokens := must.Get(TokenFile.Open(file, func(err error) { t.Error(err) }))(t)
	a, log := apiOf(t, httpapi.Access{Tokens: tokens.Current})
	h := a.Operations().Handler()
	const block, view, operate = `{"user":"mallory"}`, "Bearer 0123456789abcdef", "Bearer fedcba9876543210"
	for _, c := range []struct {
		method, path, body, token string
		want                      int
	}{
		{"GET", "/v1/rules", "", view, 200}, {"GET", "/v1/rules", "", operate, 200}, {"GET", "/v1/rules", "", "", 401},
		{"GET", "/v1/rules", "", "bearer 0123456789abcdef", 200}, {"GET", "/v1/rules", "", "Basic 0123456789abcdef",
			401},
		{"GET", "/v1/rules", "", "Bearer 0123456789abcdee", 401}, {"POST", "/v1/block", block, view, 403}, {"POST",
			"/v1/block", block, operate, 200},
		{"GET", "/v1/events", "", view, 403}, {"GET", "/v1/nothing", "", "", 401}, {"GET", "/v1/nothing", "", view,
			404},
	} {
		code, body := send(h, there, c.method, c.path, c.body, "Authorization", c.token)
		if code != c.want {
			t.Errorf("%s %s with %q: %d %s, want %d", c.method, c.path, c.token, code, body, c.want)
		}
	}
	for _, want := range []string{"who=olga", "mallory", "before=null", `after="{\"block\"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log of the change lacks %s:\n%s", want, log)
		}
	}
}

func TestBadInputGetsAProblem(t *testing.T) {
	a, log := apiOf(t, httpapi.Access{Local: httpapi.Operate})
	h := a.Operations().Handler()
	for _, c := range []struct {
		method, path, body string
		want               int
		text               string
	}{
		{"POST", "/v1/block", ``, 400, "empty"},
		{"POST", "/v1/block", `{"user":"x"} {}`, 400, "one object alone"},
		{"POST", "/v1/block", `{"usr":"x"}`, 400, "usr"},
		{"POST", "/v1/block", `{"User":"x"}`, 400, "User"},
		{"POST", "/v1/block", `{"user":null}`, 400, "null"},
		{"POST", "/v1/block", `{"user":""}`, 400, "empty"},
		{"POST", "/v1/block", `{"user":7}`, 400, "user"},
		{"POST", "/v1/block", `{"user":"/search"}`, 400, "looks like a path"},
		{"POST", "/v1/block", `{"user":"x","tenant":"y"}`, 400, "name one"},
		{"POST", "/v1/block", `{"ip":"300.1.1.1"}`, 400, "address or a network"},
		{"POST", "/v1/block", `{"user":"x","domain":"other"}`, 404, "shop"},
		{"POST", "/v1/block", `{"user":"x","for":"-1h"}`, 400, "one unit"},
		{"POST", "/v1/block", `{"user":"x","until":"2001-01-01T00:00:00Z"}`, 422, "has passed"},
		{"POST", "/v1/block", `{"user":"x","until":"9999-12-31T23:59:59-12:00"}`, 422, "9999"},
		{"POST", "/v1/block", `{"user":"x","reason":"a\r\nb"}`, 422, "control"},
		{"POST", "/v1/block", `{"user":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "more than"},
		{"POST", "/v1/tier", `{"ip":"192.0.2.1","tier":"x"}`, 422, "address"},
		{"POST", "/v1/tier", `{"user":"x","limits":[{"count":5,"per":"1h","algorithm":"leaky"}]}`, 400, "leaky"},
		{"POST", "/v1/reset", `{}`, 422, "name whom"},
		{"POST", "/v1/reset", `{"keys":["nothing"]}`, 404, "no limit"},
		{"POST", "/v1/explain", `{}`, 400, "one of rls"},
		{"GET", "/v1/usage?user=x&user=y", "", 400, "2 times"},
		{"GET", "/v1/usage?path=x", "", 400, "unknown"},
		{"DELETE", "/v1/block", "", 405, "use POST"},
		{"POST", "/v1/rules", "", 405, "use GET"},
	} {
		code, body := send(h, here, c.method, c.path, c.body)
		var p httpapi.Problem
		err := json.Unmarshal([]byte(body), &p)
		if err != nil || code != c.want || p.Status != code || !strings.Contains(p.Detail, c.text) {
			t.Errorf("%s %s %.60s = %d %s, want %d with %q", c.method, c.path, c.body, code, body, c.want, c.text)
		}
	}
	if code, _ := send(h, here, "POST", "/v1/block", `{"user":"x"}`, "Content-Type", "text/plain"); code != 415 {
		t.Errorf("text/plain: %d, want 415", code)
	}
	if log.Len() > 0 {
		t.Errorf("something was logged as a change:\n%s", log)
	}
}

// TestTheDocumentDescribesWhatIsNamed holds that every type of the document has a comment, and every reference a
// schema.
func TestTheDocumentDescribesWhatIsNamed(t *testing.T) {
	a, _ := apiOf(t, httpapi.Access{Local: httpapi.Operate})
	text := must.Get(json.Marshal(a.Operations().Document()))(t)
	var d struct {
		Components struct {
			Schemas map[string]struct {
				Description string `json:"description"`
			} `json:"schemas"`
		} `json:"components"`
	}
	must.Do(t, json.Unmarshal(text, &d))
	if len(d.Components.Schemas) < 30 {
		t.Errorf("the document has %d schemas", len(d.Components.Schemas))
	}
	for name, s := range d.Components.Schemas {
		if s.Description == "" && name != "Problem" && name != "Field" && name != "Unlisted" {
			t.Errorf("the schema %s has no description", name)
		}
	}
	for _, part := range strings.Split(string(text), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if _, known := d.Components.Schemas[name]; !known {
			t.Errorf("the document lacks the schema %s", name)
		}
	}
}

func TestEventsArriveAsTheyHappen(t *testing.T) {
	a, _ := apiOf(t, httpapi.Access{Local: httpapi.Operate})
	stopping := make(chan struct{})
	a.Stopping = stopping
	server := httptest.NewServer(a.Operations().Handler())
	defer server.Close()
	answer := must.Get(server.Client().Get(server.URL + "/v1/events?domain=shop"))(t)
	defer answer.Body.Close()
	first := make([]byte, len(": refusals follow\n\n"))
	_, err := io.ReadFull(answer.Body, first)
	if err != nil || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream begins with %q, %v", first, err)
	}
	now := a.Now()
	for i := range 101 {
		if a.Events.Wanted(now) {
			a.Events.Publish(live.Event{Domain: []string{"shop", "other"}[i%2], Rule: "each"})
		}
	}
	if a.Events.Wanted(now) {
		t.Error("a second has more than 100 events")
	}
	lines, seen := bufio.NewScanner(answer.Body), 0
	for seen < 50 && lines.Scan() {
		seen += strings.Count(lines.Text(), `"domain":"shop"`)
		if strings.Contains(lines.Text(), `"domain":"other"`) {
			t.Fatal("an event of another domain arrives")
		}
	}
	if seen != 50 {
		t.Errorf("%d events arrived, want 50: %v", seen, lines.Err())
	}
	close(stopping)
	_, err = io.Copy(io.Discard, answer.Body)
	if err != nil {
		t.Errorf("the stream does not end when it has to: %v", err)
	}
}
