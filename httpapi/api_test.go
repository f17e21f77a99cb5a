package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/test/must"
)

// thing is what the operations of the tests are about.
type thing struct {
	Name     string   `json:"name"`
	Parts    []string `json:"parts"`
	Revision int64    `json:"revision" etag:""`
}

// thingRequest is what a thing shall be.
type thingRequest struct {
	_      struct{}          `oneof:"size weight+unit"`
	Size   *int64            `json:"size,omitempty" in:"1..10"`
	Weight *int64            `json:"weight,omitempty"`
	Unit   string            `json:"unit,omitempty" one:"g kg"`
	Labels map[string]string `json:"labels,omitempty"`
	Parts  []string          `json:"parts,omitempty" in:"1..2"`
	At     time.Time         `json:"at,omitzero"`
	Code   string            `json:"code,omitempty" like:"^[a-z]+$"`
}

// inThing is where a thing is.
type inThing struct {
	Domain string `path:"domain" in:"1..8"`
	Name   string `path:"name"`
}

// setThing is the inputs of a change.
type setThing struct {
	inThing
	Condition
	Sent[thingRequest]
}

// search is the inputs of a list.
type search struct {
	Limit int        `query:"limit" in:"1..1000" or:"20"`
	Kind  string     `query:"kind" one:"a b"`
	Deep  bool       `query:"deep"`
	Since *time.Time `query:"since"`
	User  string     `query:"user,required"`
}

// found is what was asked for.
type found struct {
	Search string  `json:"search"`
	Things []thing `json:"things"`
}

var errAway = errors.New("the store is away")

// apiOf has an operation of each kind.
func apiOf(access Access) *API {
	a := New(Config{
		Title: "Test", Access: access, Within: time.Second, MaxBody: 1000,
		Problem: func(err error) *Problem { return NewProblem(http.StatusServiceUnavailable, "%v", err) },
	})
	list := Op{Method: "GET", Path: "/v1/things", Role: View, AnyDomain: true}
	Add(a, list, func(_ context.Context, in *search) (*found, error) {
		text, err := json.Marshal(in)
		return &found{Search: string(text)}, err
	})
	const one = "/v1/domains/{domain}/things/{name...}"
	Add(a, Op{Method: "PUT", Path: one, Role: Operate, Made: true},
		func(_ context.Context, in *setThing) (*thing, error) {
			revision := int64(1)
			if want := in.Condition.Revision(); want != nil {
				revision = *want + 1
			}
			return &thing{Name: in.Name, Revision: revision}, nil
		})
	Add(a, Op{Method: "DELETE", Path: one, Role: Administer},
		func(context.Context, *inThing) (*None, error) { return nil, nil })
	Add(a, Op{Method: "GET", Path: "/v1/away", Role: View},
		func(context.Context, *None) (*thing, error) { return nil, errAway })
	AddStream[None, thing](a, Op{Method: "GET", Path: "/v1/stream", Role: View, AnyDomain: true},
		func(_ context.Context, _ *None, out *Stream) error {
			err := out.Begin("things follow")
			if err != nil {
				return err
			}
			return out.Send("thing", thing{Name: "first"})
		})
	return a
}

// ask sends a request from this machine, and returns the answer and its body.
func ask(a *API, method, path, body string, headers ...string) (*httptest.ResponseRecorder, string) {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	return w, w.Body.String()
}

var everybody = Access{Roles: Roles{"view", "operate", "admin"}, Local: Administer, TokenFile: "TOKENS"}

// TestInputsAreReadByTheirTags reads parameters with their defaults, and a body with whole numbers as JSON writes them.
func TestInputsAreReadByTheirTags(t *testing.T) {
	a := apiOf(everybody)
	for query, want := range map[string]string{
		"?user=ann": `"Limit\":20,\"Kind\":\"\",\"Deep\":false,\"Since\":null,\"User\":\"ann\"`,
		"?user=%2F&limit=7&kind=b&deep=true&since=2026-11-30t12:00:00z": `"Limit\":7,\"Kind\":\"b\",\"Deep\":true,` +
			`\"Since\":\"2026-11-30T12:00:00Z\",\"User\":\"/\"`,
	} {
		if w, body := ask(a, "GET", "/v1/things"+query, ""); w.Code != 200 ||
			!strings.Contains(body, strings.TrimPrefix(want, `"`)) ||
			!strings.Contains(body, `"things": []`) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, body, want)
		}
	}
	w, body := ask(a, "PUT", "/v1/domains/shop/things/a/b%2Fc",
		`{"size": 1e1, "labels": {"a": ""}, "at": "2026-11-30T12:00:00Z"}`)
	if w.Code != 201 || w.Header().Get("ETag") != `"1"` || !strings.Contains(body, `"name": "a/b/c"`) {
		t.Errorf("%d %v %s", w.Code, w.Header(), body)
	}
	w, _ = ask(a, "PUT", "/v1/domains/shop/things/a", `{"size": 3}`, "If-Match", `"41"`)
	if w.Code != 200 || w.Header().Get("ETag") != `"42"` {
		t.Errorf("with a condition: %d %v", w.Code, w.Header())
	}
	if w, body := ask(a, "DELETE", "/v1/domains/shop/things/a", ""); w.Code != 204 || body != "" {
		t.Errorf("DELETE: %d %q", w.Code, body)
	}
}

// TestWhatIsNotDescribedIsRefused sends one thing that is wrong each.
func TestWhatIsNotDescribedIsRefused(t *testing.T) {
	const thing = "/v1/domains/shop/things/a"
	for _, c := range []struct {
		method, path, body string
		want               int
		text               string
	}{
		{"GET", "/v1/things", "", 400, "the parameter user is missing"},
		{"GET", "/v1/things?user=", "", 400, "the parameter user is empty"},
		{"GET", "/v1/things?user=%00", "", 400, "the parameter user"},
		{"GET", "/v1/things?user=%ff", "", 400, "the parameter user must be UTF-8"},
		{"GET", "/v1/things?user=a&user=b", "", 400, "2 times"},
		{"GET", "/v1/things?user=a&users=b", "", 400, "the parameter users is unknown"},
		{"GET", "/v1/things?user=a&limit=0", "", 400, "1 to 1000"},
		{"GET", "/v1/things?user=a&limit=x", "", 400, "must be a whole number"},
		{"GET", "/v1/things?user=a&deep=1", "", 400, "true or false"},
		{"GET", "/v1/things?user=a&kind=c", "", 400, "one of a, b"},
		{"GET", "/v1/things?user=a&since=soon", "", 400, "must be a time such as"},
		{"GET", "/v1/things?user=%zz", "", 400, "query cannot be read"},
		{"PUT", "/v1/domains/too-long-one/things/a", `{"size":3}`, 400, "domain must have 1 to 8 characters"},
		{"PUT", thing, ``, 400, "the body is empty"},
		{"PUT", thing, `{"size":3} {}`, 400, "one object alone"},
		{"PUT", thing, `[]`, 400, "must be an object"},
		{"PUT", thing, `{"size":`, 400, "must be JSON"},
		{"PUT", thing, `null`, 400, "body is null"},
		{"PUT", thing, `{}`, 400, "one of size, weight with unit"},
		{"PUT", thing, `{"weight":3}`, 400, "one of size, weight with unit"},
		{"PUT", thing, `{"size":3,"weight":3,"unit":"g"}`, 400, "one of size, weight with unit"},
		{"PUT", thing, `{"size":11}`, 400, "size 11 must be a number from 1 to 10"},
		{"PUT", thing, `{"size":1.5}`, 400, "whole number"},
		{"PUT", thing, `{"size":"3"}`, 400, "must be a whole number"},
		{"PUT", thing, `{"Size":3}`, 400, "Size is unknown"},
		{"PUT", thing, `{"size":3,"parts":null}`, 400, "parts is null"},
		{"PUT", thing, `{"size":3,"parts":["a","b","c"]}`, 400, "1 to 2 items"},
		{"PUT", thing, `{"size":3,"parts":[""]}`, 400, "parts[0] is empty"},
		{"PUT", thing, `{"size":3,"labels":{"a":1}}`, 400, "labels.a must be a text"},
		{"PUT", thing, `{"size":3,"code":"A"}`, 400, "^[a-z]+$"},
		{"PUT", thing, `{"weight":3,"unit":"lb"}`, 400, "one of g, kg"},
		{"PUT", thing, `{"size":3,"at":"tomorrow"}`, 400, "must be a time such as"},
		{"PUT", thing, `{"size":3,"labels":{"a":"\u0000"}}`, 400, "labels.a"},
		{"PUT", thing, `{"size":3,"code":"` + strings.Repeat("x", 1000) + `"}`, 413, "more than 1000 bytes"},
		{"POST", thing, `{}`, 405, "use PUT or DELETE"},
		{"GET", "/v1/nothing", "", 404, "/v1/openapi.json"},
		{"GET", "/v1/away", "", 503, "the store is away"},
	} {
		w, body := ask(apiOf(everybody), c.method, c.path, c.body)
		var p Problem
		err := json.Unmarshal([]byte(body), &p)
		if err != nil || w.Code != c.want || p.Status != c.want || !strings.Contains(p.Detail, c.text) {
			t.Errorf("%s %s %.60s = %d %s, want %d with %q", c.method, c.path, c.body, w.Code, body, c.want, c.text)
		}
		if kind := w.Header().Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s %s is %s", c.method, c.path, kind)
		}
	}
	if w, body := ask(apiOf(everybody), "PUT", thing, "{}", "Content-Type", "text/plain"); w.Code != 415 {
		t.Errorf("text/plain: %d %s", w.Code, body)
	}
	for _, etag := range []string{"", "3", `"0"`, `W/"3"`} {
		if w, body := ask(apiOf(everybody), "PUT", thing, `{"size":3}`, "If-Match", etag); w.Code != 400 {
			t.Errorf("if-match %s: %d %s", etag, w.Code, body)
		}
	}
}

// TestAllProblemsAreNamedAtOnce sends a request with four of them.
func TestAllProblemsAreNamedAtOnce(t *testing.T) {
	w, body := ask(apiOf(everybody), "PUT", "/v1/domains/too-long-one/things/a?x=1", `{"size": 11, "code": "A"}`)
	var p Problem
	err := json.Unmarshal([]byte(body), &p)
	if err != nil || w.Code != 400 || len(p.Errors) != 4 {
		t.Errorf("%d %s, %v", w.Code, body, err)
	}
}

// TestMethods: GET is HEAD, too, and what a path has not is refused with what it has.
func TestMethods(t *testing.T) {
	if w, _ := ask(apiOf(everybody), "HEAD", "/v1/things?user=ann", ""); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	if w, _ := ask(apiOf(everybody), "TRACE", "/v1/things", ""); w.Code != 405 ||
		w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("TRACE: %d %v", w.Code, w.Header())
	}
}

// TestTokensHaveRolesAndDomains asks each operation with tokens of each role, of all domains and of one.
func TestTokensHaveRolesAndDomains(t *testing.T) {
	var tokens []Token
	for _, role := range digests.Roles {
		for _, domains := range [][]string{nil, {"shop"}} {
			_, line, err := digests.New(role, role+strings.Join(domains, ""), domains...)
			if err != nil {
				t.Fatal(err)
			}
			token := must.Get(digests.parse(strings.Fields(line)))(t)
			tokens = append(tokens, token)
		}
	}
	access := Access{Roles: digests.Roles, Tokens: func() []Token { return tokens }, TokenFile: "TOKENS"}
	a := apiOf(access)
	if w, _ := ask(a, "GET", "/v1/things?user=a", ""); w.Code != 401 ||
		!strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("without a token: %d %v", w.Code, w.Header())
	}
	for _, o := range a.operations {
		for _, token := range tokens {
			for _, domain := range []string{"shop", "other"} {
				r := httptest.NewRequest(o.Method, strings.NewReplacer("{domain}", domain, "{name...}",
					"a").Replace(o.Path), nil)
				r.SetPathValue("domain", domain)
				if !strings.Contains(o.Path, "{domain}") {
					r.SetPathValue("domain", "")
				}
				allowed := access.lacks(token.Caller, o.Role) == nil && o.reaches(token.Caller, r) == nil
				inDomain := token.Domains == nil || o.AnyDomain || strings.Contains(o.Path,
					"{domain}") && domain == "shop"
				if want := token.Role >= o.Role && inDomain; allowed != want {
					t.Errorf("%s may use %s %s of %s: %v, want %v", token.Name, o.Method, o.Path, domain, allowed, want)
				}
			}
		}
	}
}

// TestPagesOfOthersGetNothing: without tokens this machine alone is served, under a name of its own, and no page of
// another origin.
func TestPagesOfOthersGetNothing(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"another machine":   func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" },
		"another name":      func(r *http.Request) { r.Host = "rebound.example" },
		"another site":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a page beside it":  func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"an origin, to PUT": func(r *http.Request) { r.Method = "PUT"; r.Header.Set("Origin", "http://evil.example") },
	} {
		r := httptest.NewRequest("GET", "http://localhost/v1/things?user=a", nil)
		r.RemoteAddr = "127.0.0.1:1234"
		change(r)
		w := httptest.NewRecorder()
		apiOf(everybody).Handler().ServeHTTP(w, r)
		if w.Code != 403 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestAStreamEndsWithItsReader reads the begin of a stream.
func TestAStreamEndsWithItsReader(t *testing.T) {
	server := httptest.NewServer(apiOf(everybody).Handler())
	defer server.Close()
	answer := must.Get(server.Client().Get(server.URL + "/v1/stream"))(t)
	defer answer.Body.Close()
	text, err := io.ReadAll(bufio.NewReader(answer.Body))
	const want = ": things follow\n\nevent: thing\ndata: {\"name\":\"first\",\"parts\":null,\"revision\":0}\n\n"
	if err != nil || string(text) != want || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTheDocumentIsMadeOfTheTypes looks up some parts of the document.
func TestTheDocumentIsMadeOfTheTypes(t *testing.T) {
	_, body := ask(apiOf(everybody), "GET", "/v1/openapi.json", "")
	var d struct {
		Paths      map[string]map[string]struct{ Parameters []parameter }
		Components struct{ Schemas map[string]*Schema }
	}
	must.Do(t, json.Unmarshal([]byte(body), &d))
	sizes := d.Components.Schemas["thingRequest"].Properties["size"]
	if *sizes.Minimum != 1 || *sizes.Maximum != 10 {
		t.Errorf("size is %v", sizes)
	}
	if all := d.Components.Schemas["thingRequest"].OneOf; len(all) != 2 || len(all[1].Required) != 2 {
		t.Errorf("the alternatives are %v", all)
	}
	limit := d.Paths["/v1/things"]["get"].Parameters[0]
	if limit.Name != "limit" || limit.Required || limit.Schema.Default != 20.0 {
		t.Errorf("limit is %+v %+v", limit, limit.Schema)
	}
	put := d.Paths["/v1/domains/{domain}/things/{name}"]["put"].Parameters
	if len(put) != 4 || put[2].Name != "If-Match" || put[2].In != "header" {
		t.Errorf("PUT has %+v", put)
	}
}

// endless is a body without an end.
type endless struct{}

// Read reads.
func (endless) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

// manyLines is the inputs of a load.
type manyLines struct {
	Lines Lines `body:"text/csv"`
}

// TestABodyOfLinesHasABound sends more than a load may have.
func TestABodyOfLinesHasABound(t *testing.T) {
	a, read := apiOf(everybody), int64(0)
	load := Op{Method: "POST", Path: "/v1/load", Role: View, Within: time.Minute, MaxBody: 1 << 20}
	Add(a, load, func(_ context.Context, in *manyLines) (*None, error) {
		var err error
		read, err = io.Copy(io.Discard, in.Lines)
		var large *http.MaxBytesError
		if !errors.As(err, &large) {
			t.Errorf("the body ends with %v", err)
		}
		return nil, nil
	})
	r := httptest.NewRequest("POST", "http://localhost/v1/load", endless{})
	r.RemoteAddr = "127.0.0.1:1234"
	r.Header.Set("Content-Type", "text/csv")
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, r)
	if w.Code != 204 || read != load.MaxBody {
		t.Errorf("%d bytes were read: %d %s", read, w.Code, w.Body)
	}
}
