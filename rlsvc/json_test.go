package rlsvc

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

const jsonRequest = `{"domain": "shop", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "user", "value": ` +
	`"alice"}]}]}`

// post sends a body to /json and returns what came back.
func post(config Config, method string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	New(config).JSON().ServeHTTP(w, httptest.NewRequest(method, "/json", body))
	return w
}

func TestJSONAnswers(t *testing.T) {
	admitted := status("per-user", 100, 99, false)
	spent := status("per-user", 100, 0, true)
	spent.Effect.Multiplier = 5
	cases := []struct {
		name    string
		verdict engine.Verdict
		status  int
		want    string
	}{
		{"admitted", engine.Verdict{Statuses: []engine.Status{admitted}}, 200,
			`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"per-user","requestsPerUnit":100,` +
				`"unit":"MINUTE"},"limitRemaining":99,"durationUntilReset":"100s"}]}`},
		{"no limit", engine.Verdict{Statuses: []engine.Status{{}}}, 200,
			`{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		{"unlimited", engine.Verdict{Statuses: []engine.Status{{Unlimited: true}}}, 200,
			`{"overallCode":"OK","statuses":[{"code":"OK","limitRemaining":4294967295}]}`},
		{"refused", engine.Verdict{Refused: true, RetryAfter: 7 * time.Second, Statuses: []engine.Status{spent},
			Response: &descriptors.Response{
				Message: "No.", Headers: []descriptors.Header{{Name: "content-type", Value: "text/plain"}}}}, 429,
			`{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"name":"per-user",` +
				`"requestsPerUnit":100,"unit":"MINUTE","unitMultiplier":5},"durationUntilReset":"100s"}],` +
				`"responseHeadersToAdd":[{"key":"retry-after","value":"7"},{"key":"content-type",` +
				`"value":"text/plain"}],"rawBody":"Tm8u"}`},
		{"degraded", engine.Verdict{Degraded: "timeout", Statuses: []engine.Status{{}}}, 200,
			`{"overallCode":"OK","statuses":[{"code":"OK"}],"dynamicMetadata":{"degraded":"timeout"}}`},
	}
	for _, c := range cases {
		got := post(Config{Engine: fixed(c.verdict)}, http.MethodPost, strings.NewReader(jsonRequest))
		if got.Code != c.status {
			t.Errorf("%s: status %d, want %d", c.name, got.Code, c.status)
		}
		if diff := cmp.Diff(c.want, got.Body.String()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if kind := got.Header().Get("Content-Type"); kind != "application/json" {
			t.Errorf("%s: content type %q", c.name, kind)
		}
	}
}

func TestJSONRequestArrivesWhole(t *testing.T) {
	var got descriptors.Request
	config := Config{Engine: script(func(req *descriptors.Request, v *engine.Verdict) {
		got = descriptors.Request{Domain: req.Domain, Hits: req.Hits}
		for _, d := range req.Descriptors {
			d.Entries = append([]descriptors.Entry(nil), d.Entries...)
			got.Descriptors = append(got.Descriptors, d)
			v.Statuses = append(v.Statuses, engine.Status{})
		}
	})}
	post(config, http.MethodPut, strings.NewReader(`{"domain": "shop", "hits_addend": 2, "descriptors": [
		{"entries": [{"key": "user", "value": "\u0000é"}], "hitsAddend": "18446744073709551615", "isNegativeHits": true,
		 "limit": {"requestsPerUnit": 5, "unit": "DAY"}}, {}]}`))
	want := descriptors.Request{Domain: "shop", Hits: 2, Descriptors: []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: "user", Value: "\x00é"}}, Hits: 1<<64 - 1, HitsGiven: true,
			NegativeHits: true,
			Override:     &descriptors.Override{Count: 5, Unit: descriptors.Day, Multiplier: 1}},
		{},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the line is down") }

func TestJSONRefusesWhatCannotBeDecoded(t *testing.T) {
	cases := []struct {
		name, method string
		body         io.Reader
		status       int
		want         string
	}{
		{"an empty GET", http.MethodGet, nil, 400, "Bad Request\n"},
		{"no JSON", http.MethodPost, strings.NewReader("domain: shop"), 400, "Bad Request\n"},
		{"cut JSON", http.MethodPost, strings.NewReader(jsonRequest[:30]), 400, "Bad Request\n"},
		{"an unknown field", http.MethodPost, strings.NewReader(`{"domian": "shop"}`), 400, "Bad Request\n"},
		{"a number that does not fit", http.MethodPost, strings.NewReader(`{"hitsAddend": 4294967296}`), 400,
			"Bad Request\n"},
		{"a broken line", http.MethodPost, broken{}, 400, "Bad Request\n"},
	}
	for _, c := range cases {
		got := post(Config{Engine: fixed(engine.Verdict{})}, c.method, c.body)
		if got.Code != c.status || got.Body.String() != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.name, got.Code, got.Body, c.status, c.want)
		}
	}
}

func TestJSONRefusesWhatBringsTooMuch(t *testing.T) {
	for name, c := range map[string]struct {
		body     string
		statuses int
	}{
		"more than 1 MiB":              {`{"domain": "` + strings.Repeat("x", 1<<20) + `"}`, 0},
		"more than 10,000 descriptors": {`{"descriptors": [{}` + strings.Repeat(",{}", 10_000) + `]}`, 10_001},
	} {
		got := post(Config{Engine: script(refuseExcess)}, http.MethodPost, strings.NewReader(c.body))
		if got.Code != 429 || !strings.HasPrefix(got.Body.String(), `{"overallCode":"OVER_LIMIT",`) ||
			strings.Count(got.Body.String(), `{"code":`) != c.statuses {
			t.Errorf("%s: %d %.200s, want 429 and %d statuses", name, got.Code, got.Body, c.statuses)
		}
	}
}

// refuseExcess decides as the engine does, without rules.
func refuseExcess(req *descriptors.Request, v *engine.Verdict) {
	*v = engine.Verdict{Refused: req.Excess != "", Excess: req.Excess,
		Statuses: make([]engine.Status, len(req.Descriptors))}
}

func TestJSONAnswersOddRequests(t *testing.T) {
	config := Config{Engine: script(func(req *descriptors.Request, v *engine.Verdict) {
		v.Statuses = make([]engine.Status, len(req.Descriptors))
	})}
	for body, want := range map[string]string{
		`{}`: `{"overallCode":"OK"}`,
		`{"domain": "", "descriptors": [{}, {"limit": {"requestsPerUnit": 1}}]}`: `{"overallCode":"OK",` +
			`"statuses":[{"code":"OK"},{"code":"OK"}]}`,
	} {
		got := post(config, http.MethodPost, strings.NewReader(body))
		if got.Code != 200 || got.Body.String() != want {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
}

func TestJSONAnswersAPanic(t *testing.T) {
	var faults []any
	config := Config{
		Engine:  script(func(*descriptors.Request, *engine.Verdict) { panic("boom") }),
		OnPanic: func(fault any) { faults = append(faults, fault) },
	}
	got := post(config, http.MethodPost, strings.NewReader(jsonRequest))
	if want := `{"overallCode":"OK","statuses":[{"code":"OK"}]}`; got.Code != 200 || got.Body.String() != want {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if len(faults) != 1 {
		t.Errorf("told of %v, want one fault", faults)
	}
}
