package integration

import (
	"encoding/json"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-mesh/spillway/test/must"
	"github.com/spillway-mesh/spillway/test/servers"
)

// contract is docs/reference/answers.openapi.yaml, and which of its headers and contents real answers have shown.
type contract struct {
	document place
	schemas  *jsonschema.Compiler
	shown    map[string]bool
}

// place is an object of the document, with its JSON pointer.
type place struct {
	pointer string
	object  map[string]any
}

const contractURL = "answers.json"

func readContract(t *testing.T) *contract {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(servers.Root(t), "docs", "reference", "answers.openapi.yaml")))(t)
	var written map[string]any
	must.Do(t, yaml.Unmarshal(text, &written))
	var document map[string]any
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(written))(t), &document))
	c := &contract{document: place{object: document}, schemas: jsonschema.NewCompiler(), shown: map[string]bool{}}
	must.Do(t, c.schemas.AddResource(contractURL, document))
	return c
}

var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// below goes down by names, and to where references lead.
func (c *contract) below(p place, names ...string) (to place, found bool) {
	for _, name := range names {
		object, is := p.object[name].(map[string]any)
		if !is {
			return place{}, false
		}
		p = place{p.pointer + "/" + escapePointer.Replace(name), object}
		if ref, is := object["$ref"].(string); is {
			p, is = c.below(c.document, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			if !is {
				return place{}, false
			}
		}
	}
	return p, true
}

// fits reports whether the schema of a header, of a content or of a request's body allows a value.
func (c *contract) fits(t *testing.T, of place, value any) error {
	t.Helper()
	at, found := c.below(of, "schema")
	if !found {
		t.Fatalf("%s has no schema", of.pointer)
	}
	return must.Get(c.schemas.Compile(contractURL + "#" + at.pointer))(t).Validate(value)
}

// holds fails unless an answer is one of that response of the document, and has the headers named.
func (c *contract) holds(t *testing.T, path, response string, got answer, headers ...string) {
	t.Helper()
	responses, _ := c.below(c.document, "paths", path, methods[path], "responses")
	r, found := c.below(responses, response)
	_, own := c.below(responses, strconv.Itoa(got.status))
	if !found || response != strconv.Itoa(got.status) && (response != "default" || own) {
		t.Fatalf("%s was answered with %d: that is no %q of the document (headers %v, body %q)", path, got.status,
			response, got.header, got.body)
	}
	for _, name := range headers {
		if len(got.header.Values(name)) != 1 {
			t.Errorf("%s is %q, want it once (headers %v)", name, got.header.Values(name), got.header)
		}
	}
	c.headers(t, r, got.header)
	c.content(t, r, got)
}

// methods are those under which the document has its paths.
var methods = map[string]string{"/{path}": "get", "/json": "post"}

// headers fails unless the document has each of Spillway's headers, and its schema allows the value.
func (c *contract) headers(t *testing.T, response place, header http.Header) {
	t.Helper()
	documented, _ := c.below(response, "headers")
	names := map[string]string{}
	for name := range documented.object {
		names[http.CanonicalHeaderKey(name)] = name
	}
	for name, values := range header {
		lower := strings.ToLower(name)
		if !strings.Contains(lower, "ratelimit") && lower != "retry-after" {
			continue
		}
		at, found := c.below(documented, names[name])
		if !found {
			t.Errorf("%s does not have the header %s: %q", response.pointer, lower, values)
			continue
		}
		c.shown[response.pointer+" "+names[name]] = true
		var value any = values[0]
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err == nil && c.fits(t, at, n) == nil {
			value = n
		}
		err = c.fits(t, at, value)
		if err != nil {
			t.Errorf("%s: %q: %v", lower, values[0], err)
		}
	}
}

// content fails unless the document has the type of the body, and its schema allows the body. The application's own
// answers have none in the document.
func (c *contract) content(t *testing.T, response place, got answer) {
	t.Helper()
	contents, found := c.below(response, "content")
	if !found {
		return
	}
	kind, _, err := mime.ParseMediaType(got.header.Get("content-type"))
	at, found := c.below(contents, kind)
	if err != nil || !found {
		t.Errorf("%s has no content of the type %q", response.pointer, got.header.Get("content-type"))
		return
	}
	c.shown[response.pointer+" "+kind] = true
	var body any = got.body
	if strings.HasSuffix(kind, "json") {
		must.Do(t, json.Unmarshal([]byte(got.body), &body))
	}
	err = c.fits(t, at, body)
	if err != nil {
		t.Errorf("%s: %v", got.body, err)
	}
}

// whole fails if the document has a header or a content that no answer has shown.
func (c *contract) whole(t *testing.T) {
	t.Helper()
	for path, method := range methods {
		responses, _ := c.below(c.document, "paths", path, method, "responses")
		for status := range responses.object {
			r, _ := c.below(responses, status)
			for _, part := range []string{"headers", "content"} {
				documented, _ := c.below(r, part)
				for name := range documented.object {
					if !c.shown[r.pointer+" "+name] {
						t.Errorf("%s %s of %s: no answer has shown %s %s", method, path, status, part, name)
					}
				}
			}
		}
	}
}

const contractRules = `
domain: partners
headers: both
identity:
  order: [api_key, ip]
  api_keys:
    header: x-api-key
    keys: [{ id: ci, sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }]
  client_ip: { trusted_hops: 1 }
rules:
  - { name: first, scope: endpoint, match: { endpoints: ["/partners/limited"] }, limit: 1/1h }
  - name: own-words
    scope: endpoint
    match: { endpoints: ["/partners/words"] }
    limit: 0/1h
    response: { status: 503, message: "Come back later." }
  - { name: banned, match: { endpoints: ["/partners/banned"] }, action: block, until: 2099-01-01T00:00:00Z }
`

func TestAnswersKeepTheirContract(t *testing.T) {
	c, w := readContract(t), startAuthz(t, authzSetup{rules: map[string]string{"partners.yaml": contractRules,
		"authz.yaml": "domain: api\nrules:\n  - { name: per-user, scope: user, limit: 1/1h }\n"}})
	w.clean(t, "over ext_authz", func(t *testing.T) { w.contractOfAuthz(t, c) })
	w.clean(t, "over the rate limit service", func(t *testing.T) { w.contractOfRLS(t, c) })
	t.Run("of /json", func(t *testing.T) { w.contractOfJSON(t, c) })
	c.whole(t)
}

// limitHeaders are on each answer about a limit.
var limitHeaders = []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-cost"}

func (w *world) contractOfAuthz(t *testing.T, c *contract) {
	const path = "/{path}"
	both := append([]string{"RateLimit", "RateLimit-Policy"}, limitHeaders...)
	refused := append([]string{"retry-after", "x-ratelimit-decision"}, both...)
	c.holds(t, path, "200", w.get(t, "/partners/limited"), both...)
	c.holds(t, path, "429", w.get(t, "/partners/limited"), refused...)
	c.holds(t, path, "429", w.get(t, "/partners/limited", "accept", "text/plain"), "retry-after")
	c.holds(t, path, "default", w.get(t, "/partners/words"), refused...)
	for _, kind := range []string{"application/json", "text/plain"} {
		c.holds(t, path, "403", w.get(t, "/partners/banned", "accept", kind), "retry-after")
		c.holds(t, path, "400", w.send(t, http.MethodGet, "/partners/limited", "x-api-key", "one", "x-api-key", "two",
			"accept", kind))
	}
}

func (w *world) contractOfRLS(t *testing.T, c *contract) {
	const path, internal = "/{path}", "/internal"
	c.holds(t, path, "200", w.get(t, internal, "x-user", "contract"), limitHeaders...)
	c.holds(t, path, "429", w.get(t, internal, "x-user", "contract"), append([]string{"retry-after",
		"x-envoy-ratelimited", "x-ratelimit-decision"}, limitHeaders...)...)
}

func (w *world) contractOfJSON(t *testing.T, c *contract) {
	inside(t, 5*time.Minute)
	const export = `{"domain": "edge", "descriptors": [{"entries": [{"key": "export", "value": "any"}, ` +
		`{"key": "user", "value": "contract"}]`
	for _, ask := range []struct{ name, status, body string }{
		{"admitted", "200", export + `}], "hitsAddend": 1}`},
		{"a peek", "200", export + `, "hitsAddend": "0"}]}`},
		{"refused", "429", export + `}], "hitsAddend": 2}`},
		{"given back", "200", export + `, "hitsAddend": 1, "isNegativeHits": true}]}`},
		{"a limit of the request", "200", export + `, "limit": {"requestsPerUnit": 5, "unit": "HOUR"}}]}`},
		{"unlimited", "200", `{"domain": "edge", "descriptors": [{"entries": [{"key": "tenant", "value": "ops"}]}]}`},
		{"nothing", "200", `{}`},
		{"too many descriptors", "429", `{"descriptors": [{}` + strings.Repeat(",{}", 10_000) + `]}`},
		{"a misspelt field", "400", `{"domian": "edge"}`},
		{"a number that is too large", "400", `{"hitsAddend": 4294967296}`},
		{"a unit that is none", "400", `{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}`},
	} {
		t.Run(ask.name, func(t *testing.T) {
			request, _ := c.below(c.document, "paths", "/json", "post", "requestBody", "content", "application/json")
			var body any
			must.Do(t, json.Unmarshal([]byte(ask.body), &body))
			err := c.fits(t, request, body)
			if (err == nil) != (ask.status != "400") {
				t.Errorf("the document has this request otherwise: %v", err)
			}
			r := must.Get(http.NewRequest(http.MethodPost, "http://"+w.sidecar.HTTP+"/json",
				strings.NewReader(ask.body)))(t)
			c.holds(t, "/json", ask.status, must.Get(do(w.client, r))(t), "content-type")
		})
	}
}
