package house

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/httpapi"
)

// apiSchema is a part of the OpenAPI document that describes a value.
type apiSchema struct {
	Ref         string               `json:"$ref"`
	Type        any                  `json:"type"`
	Description string               `json:"description"`
	Format      string               `json:"format"`
	Pattern     string               `json:"pattern"`
	Enum        []string             `json:"enum"`
	Items       *apiSchema           `json:"items"`
	OneOf       []apiSchema          `json:"oneOf"`
	AnyOf       []apiSchema          `json:"anyOf"`
	Properties  map[string]apiSchema `json:"properties"`
	Required    []string             `json:"required"`
}

// apiBody is a document of a request or an answer.
type apiBody struct {
	Content map[string]struct {
		Schema apiSchema `json:"schema"`
	} `json:"content"`
	Description string `json:"description"`
}

// apiOperation is one method of a path.
type apiOperation struct {
	Summary     string `json:"summary"`
	Description string `json:"description"`
	Parameters  []struct {
		Name        string    `json:"name"`
		Description string    `json:"description"`
		Schema      apiSchema `json:"schema"`
	} `json:"parameters"`
	RequestBody *apiBody           `json:"requestBody"`
	Responses   map[string]apiBody `json:"responses"`
}

// word is the schema in a few words.
func (s apiSchema) word() string {
	switch {
	case s.Ref != "":
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case s.Items != nil:
		return "list of " + s.Items.word()
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case len(s.AnyOf) > 0:
		var words []string
		for _, one := range s.AnyOf {
			words = append(words, one.word())
		}
		return strings.Join(slices.Compact(words), " or ")
	case s.Format != "":
		return s.Format
	}
	if s.Type == nil {
		return "any JSON"
	}
	return fmt.Sprint(s.Type)
}

// field is a property as the page writes it: its name, with ? where it may be missing, and its type.
func (s apiSchema) field(name string) string {
	p := s.Properties[name]
	if !slices.Contains(s.Required, name) {
		name += "?"
	}
	return typed(name, p)
}

// typed is a name with its type in brackets, unless that is a string.
func typed(name string, s apiSchema) string {
	return strings.TrimSuffix("`"+name+"` ("+s.word()+")", " (string)")
}

// fields writes a list of the properties of a schema: first those without a description, last those that are shared.
func (s apiSchema) fields(out *strings.Builder, shared []string) {
	var plain, described, common []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		line := s.field(name)
		what := s.Properties[name].Description
		switch {
		case slices.Contains(shared, line+": "+what):
			common = append(common, "`"+name+"`")
		case what == "", what == "The "+name+".", what == "A "+name+".": // the name is enough
			plain = append(plain, line)
		default:
			described = append(described, line+": "+what)
		}
	}
	if len(plain) > 0 {
		described = append([]string{strings.Join(plain, ", ")}, described...)
	}
	if len(common) > 0 {
		described = append(described, "[Shared](#shared-fields): "+strings.Join(common, ", "))
	}
	for _, line := range described {
		fmt.Fprintf(out, "- %s\n", line)
	}
	fmt.Fprintln(out)
}

// sharedFields are the described properties that at least three schemas have.
func sharedFields(schemas map[string]apiSchema) []string {
	uses := map[string]int{}
	for _, s := range schemas {
		for name, p := range s.Properties {
			if p.Description != "" {
				uses[s.field(name)+": "+p.Description]++
			}
		}
	}
	maps.DeleteFunc(uses, func(_ string, n int) bool { return n < 3 })
	return slices.Sorted(maps.Keys(uses))
}

// apiDocument is an OpenAPI document.
type apiDocument struct {
	Paths      map[string]map[string]apiOperation `json:"paths"`
	Components struct {
		Schemas map[string]apiSchema `json:"schemas"`
	} `json:"components"`
}

// documentOf is the document of an API.
func documentOf(t *testing.T, operations *httpapi.API) (d apiDocument) {
	t.Helper()
	text, err := json.Marshal(operations.Document())
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTheAPIsAreDescribed wants a description of each type and each parameter: it comes from a comment in Go.
func TestTheAPIsAreDescribed(t *testing.T) {
	for _, operations := range []*httpapi.API{new(admin.API).Operations(), new(api.API).Operations()} {
		d := documentOf(t, operations)
		for name, s := range d.Components.Schemas {
			if s.Description == "" {
				t.Errorf("%s: %s is not described", operations.Title, name)
			}
		}
		for path, methods := range d.Paths {
			for method, op := range methods {
				for _, p := range op.Parameters {
					if p.Description == "" {
						t.Errorf("%s: %s %s: the parameter %s is not described", operations.Title, method, path,
							p.Name)
					}
				}
			}
		}
	}
}

// TestReferenceOfTheAPI holds docs/reference/api.md to the OpenAPI document that the sidecar serves.
func TestReferenceOfTheAPI(t *testing.T) {
	d := documentOf(t, (&admin.API{EventsRole: httpapi.View}).Operations())
	shared := sharedFields(d.Components.Schemas)
	operations, schemas := new(strings.Builder), new(strings.Builder)
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			writeOperation(operations, strings.ToUpper(method)+" "+path, op, shared)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		writeSchema(schemas, name, d.Components.Schemas[name], shared)
	}
	keep(t, "docs/reference/api.md", fmt.Sprintf(apiPage, operations,
		"- "+strings.Join(shared, "\n- "), strings.TrimSuffix(schemas.String(), "\n")))
}

// writeSchema writes the section of a document.
func writeSchema(out *strings.Builder, name string, s apiSchema, shared []string) {
	fmt.Fprintf(out, "### %s\n\n", name)
	if what := s.Description; what != "" && what != "A "+strings.ToLower(name)+"." { // the name is enough
		fmt.Fprintf(out, "%s\n\n", what)
	}
	if len(s.Properties) > 0 {
		s.fields(out, shared)
	}
	var one []string
	for _, form := range s.OneOf {
		one = append(one, "`"+strings.Join(form.Required, "` with `")+"`")
	}
	if len(one) > 0 {
		fmt.Fprintf(out, "Needs exactly one of %s.\n\n", strings.Join(one, ", "))
	}
}

// writeOperation writes the section of an operation.
func writeOperation(out *strings.Builder, title string, op apiOperation, shared []string) {
	fmt.Fprintf(out, "### %s\n\n%s %s", title, op.Summary, op.Description)
	if op.RequestBody != nil {
		fmt.Fprintf(out, " Body: %s.", op.RequestBody.Content["application/json"].Schema.word())
	}
	for kind, body := range op.Responses["200"].Content {
		fmt.Fprintf(out, " Answer: %s", body.Schema.word())
		if kind != "application/json" {
			fmt.Fprintf(out, ", as `%s`", kind)
		}
		fmt.Fprint(out, ".")
	}
	fmt.Fprint(out, "\n\n")
	if len(op.Parameters) == 0 {
		return
	}
	query := apiSchema{Properties: map[string]apiSchema{}}
	for _, p := range op.Parameters {
		p.Schema.Description = p.Description
		query.Properties[p.Name] = p.Schema
	}
	query.fields(out, shared)
}

const apiPage = `# Admin API

An operator asks a running sidecar on its debug port (` + "`DEBUG_PORT`" + `), under ` + "`/v1`" + `. This page comes
from the OpenAPI 3.1 document that the sidecar serves at ` + "`/v1/openapi.json`" + ` (` + "`make docs`" + `).

## Who may use it

By default the API answers only the sidecar's own machine, which may do everything, or with
` + "`ADMIN_LOCAL=view`" + ` only read. With
` + "`ADMIN_TOKEN_FILE`" + ` a caller needs a token (` + "`authorization: Bearer …`" + `), with
` + "`ADMIN_TLS_CLIENT_CA`" + ` a client certificate; with both, one of the two. The role ` + "`view`" + ` reads, and
` + "`operate`" + ` also changes. The log has a line for each change: who, what, before and after.

A browser's page of another origin gets nothing, nor does a host name that was made to resolve to this machine.

## How it answers

Requests and answers are JSON. An unknown field, a name in another case, null, an empty text and a second document are
errors, and a body has at most 1 MiB. An error is ` + "`application/problem+json`" + `: its
` + "`detail`" + ` explains what to do, and ` + "`errors`" + ` lists each part of the request that is wrong.

- 400: What was sent is not what is described here.
- 401, 403: The caller is not known, or may not do this.
- 404: What was named does not exist.
- 405: The path has other methods.
- 409: A control keeps the domain: the answer names the command that changes it there.
- 413, 415: The body is too large, or is not of the type application/json.
- 422: What was sent is as described, and cannot be done.
- 503: The store cannot be reached, or rules are not loaded yet.

A change of a profile or a counter reaches all sidecars within a second, over a Redis channel. Where a message is lost,
sidecars look profiles up again after at most five minutes, and counters after a second. ` + "`dry_run`" + ` changes
nothing and answers with what would change.

Profiles are in Redis beside the counters, under keys that begin with ` + "`rec1:`" + `; with ` + "`KEY_SECRET`" + ` the
keys hold no names. A Redis user with an ACL needs these keys and the channels ` + "`rec1:{sidecars}:news`" + ` and
` + "`rec1:{sidecars}:missing`" + `, each with ` + "`CACHE_KEY_PREFIX`" + `
before it. Without Redis, profiles end with the process.

` + "```sh" + `
curl -s http://127.0.0.1:6070/v1/explain -H 'content-type: application/json' \
  -d '{"http": {"domain": "shop", "method": "GET", "path": "/search", "peer": "192.0.2.7"}}'
curl -s http://127.0.0.1:6070/v1/usage?user=alice
curl -s http://127.0.0.1:6070/v1/block -H 'content-type: application/json' \
  -d '{"user": "mallory", "for": "1h", "reason": "Contact support."}'
curl -sN http://127.0.0.1:6070/v1/events
` + "```" + `

## Operations

%s## Documents

A field with ` + "`?`" + ` may be missing. A field without a type is a string.

### Shared fields

%s

%s`
